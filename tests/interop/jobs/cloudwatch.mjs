// The queries of CloudWatch Logs Insights, behind awslabs.cloudwatch-mcp-server.

import { randomUUID } from "node:crypto";
import { byHand } from "./service.mjs";

const WORDS = { running: "Running", finished: "Complete", failed: "Failed", cancelled: "Cancelled" };
const asks = (what) => new RegExp(`#Logs_20140328\\.${what}$`);
const refuse = (kind, message) => [400, { __type: kind, message }];

export const routes = {
  start: ["POST", asks("StartQuery"), (_, service) => [200, { queryId: service.start(randomUUID(), { scanned: 0 }).id }]],
  status: ["POST", asks("GetQueryResults"), ({ body: { queryId } }, service) => {
    const job = service.look(queryId);
    if (job === undefined) return refuse("ResourceNotFoundException", "Query does not exist");
    const { state, scanned } = job;
    const fields = [{ field: "@message", value: "it rains" }, { field: "@ptr", value: "CmEK" }];
    const statistics = { recordsMatched: scanned / 10, recordsScanned: scanned, bytesScanned: scanned * 100 };
    return [200, { queryLanguage: "CWLI", status: WORDS[state], statistics, results: state === "finished" ? [fields] : [] }];
  }],
  cancel: ["POST", asks("StopQuery"), ({ body: { queryId } }, service) => {
    if (service.jobs.get(queryId)?.state !== "running") {
      return refuse("InvalidParameterException", "Query with given query id is not running");
    }
    service.control({ job: queryId, state: "cancelled" });
    return [200, { success: true }];
  }],
};

await byHand(import.meta, routes);
