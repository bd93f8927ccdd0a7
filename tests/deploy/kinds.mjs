// kinds.mjs FILE..: judges objects of the kinds that others add to Kubernetes, of which kubernetes-validate has no schemas, and
// prints each that is good. The schemas have no words for members that do not exist.
import { readFileSync } from "node:fs";
import { parseAllDocuments } from "yaml";
import { HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";

const KINDS = { HTTPRoute, PodMonitor, PrometheusRule };

for (const file of process.argv.slice(2)) {
  for (const document of parseAllDocuments(readFileSync(file, "utf8"))) {
    const object = document.toJS();
    const Kind = KINDS[object?.kind];
    if (Kind) {
      new Kind(object).validate();
      console.log(object.kind);
    }
  }
}
