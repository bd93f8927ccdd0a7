//! The rendered pod, property by property.

use super::*;

fn sidecar() -> Yaml {
    named(&pod_spec()["initContainers"], "raincheck").clone()
}

fn env(name: &str) -> Yaml {
    named(&sidecar()["env"], name).clone()
}

fn setting(name: &str) -> String {
    from_config_maps(KUSTOMIZED, &sidecar())
        .remove(name)
        .unwrap()
}

#[test]
fn raincheck_is_a_native_sidecar_and_the_server_is_as_it_was() {
    assert_eq!(sidecar()["restartPolicy"].as_str(), Some("Always"));
    let containers = pod_spec()["containers"].clone();
    assert_eq!(containers.as_vec().unwrap().len(), 1);
    assert_eq!(containers[0]["name"].as_str(), Some("server"));
    let image = sidecar()["image"].as_str().unwrap().to_owned();
    assert_eq!(image, format!("raincheck:{}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn it_has_no_rights() {
    let context = &sidecar()["securityContext"];
    for (key, value) in [
        ("runAsNonRoot", true),
        ("readOnlyRootFilesystem", true),
        ("allowPrivilegeEscalation", false),
    ] {
        assert_eq!(context[key].as_bool(), Some(value), "{key}");
    }
    assert!(context["runAsUser"].as_i64().unwrap() > 0);
    let dropped = context["capabilities"]["drop"].as_vec().unwrap();
    assert_eq!(dropped, &[Yaml::String("ALL".into())]);
    assert!(context["capabilities"]["add"].is_badvalue());
    let profile = context["seccompProfile"]["type"].as_str();
    assert_eq!(profile, Some("RuntimeDefault"));
}

#[test]
fn every_probe_asks_the_probe_listener() {
    let sidecar = sidecar();
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        let asked = &sidecar[probe]["httpGet"];
        assert_eq!(asked["path"].as_str(), Some(path), "{probe}");
        assert_eq!(asked["port"].as_str(), Some("probes"), "{probe}");
    }
    let port = named(&sidecar["ports"], "probes")["containerPort"]
        .as_i64()
        .unwrap();
    let listens = setting("RAINCHECK_ADMIN__PROBES");
    assert_eq!(listens, format!("0.0.0.0:{port}"));
}

#[test]
fn the_service_leads_to_raincheck() {
    let service = rendered("Service");
    let target = service["spec"]["ports"][0]["targetPort"]
        .as_str()
        .unwrap()
        .to_owned();
    let port = named(&sidecar()["ports"], &target)["containerPort"]
        .as_i64()
        .unwrap();
    let listens = setting("RAINCHECK_LISTEN__ADDRESS");
    assert_eq!(listens, format!("0.0.0.0:{port}"));
}

#[test]
fn the_server_is_stopped_after_the_drain() {
    let pod = pod_spec();
    let hook = &pod["containers"][0]["lifecycle"]["preStop"]["httpGet"];
    let path = format!("/drain/{}", setting("RAINCHECK_DRAIN__TOKEN"));
    assert_eq!(hook["path"].as_str(), Some(&*path));
    assert!(
        hook["host"].is_badvalue(),
        "the kubelet asks the pod's address"
    );
    let port = named(&sidecar()["ports"], "probes")["containerPort"].clone();
    assert_eq!(hook["port"], port);
    assert!(sidecar()["lifecycle"].is_badvalue());
}

/// The period is shared by the hook and by the server's own end.
#[test]
fn the_pod_outlives_its_drain() {
    let period = pod_spec()["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap();
    let delay = seconds(&setting("RAINCHECK_DRAIN__DELAY"));
    let grace = seconds(&setting("RAINCHECK_DRAIN__GRACE"));
    assert!(delay > 0, "Services need a moment");
    assert!(period >= delay + grace + 5, "{period} {delay} {grace}");
}

#[test]
fn what_it_is_told_comes_from_where_it_should() {
    let secret = &env("RAINCHECK_STORE__URL")["valueFrom"]["secretKeyRef"];
    assert_eq!(secret["name"].as_str(), Some("raincheck-redis"));
    assert_eq!(secret["key"].as_str(), Some("url"));
    let key = &env("RAINCHECK_STORE__SEAL_KEY")["valueFrom"]["secretKeyRef"];
    assert_eq!(key["key"].as_str(), Some("seal-key"));
    assert_eq!(key["optional"].as_bool(), Some(true));
    let namespace = &env("RAINCHECK_STORE__NAMESPACE")["valueFrom"]["fieldRef"];
    let label = "metadata.labels['raincheck-namespace']";
    assert_eq!(namespace["fieldPath"].as_str(), Some(label));
    let deployment = rendered("Deployment");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        labels["raincheck-namespace"],
        deployment["metadata"]["name"]
    );
    let replica = &env("RAINCHECK_REPLICA__ID")["valueFrom"]["fieldRef"];
    assert_eq!(replica["fieldPath"].as_str(), Some("metadata.name"));
    let own = sidecar()["envFrom"][1]["configMapRef"]["name"].clone();
    let own = own.as_str().unwrap();
    assert!(own.starts_with("raincheck-") && !own.contains("defaults"));
    assert_eq!(pod_spec()["enableServiceLinks"].as_bool(), Some(false));
}

/// Kubernetes lets `env` win over every `ConfigMap`, so a default there could not be changed.
#[test]
fn the_config_map_wins_over_every_default() {
    let sidecar = sidecar();
    for variable in sidecar["env"].as_vec().unwrap() {
        assert!(variable["value"].is_badvalue(), "{variable:?}");
    }
    let sources = sidecar["envFrom"].as_vec().unwrap();
    let first = sources[0]["configMapRef"]["name"].as_str().unwrap();
    assert!(first.starts_with("raincheck-defaults-"), "{first}");
}

#[test]
fn it_asks_for_what_it_needs_and_no_more() {
    let resources = &sidecar()["resources"];
    assert!(resources["requests"]["cpu"].as_str().is_some());
    assert!(resources["requests"]["memory"].as_str().is_some());
    assert!(resources["limits"]["memory"].as_str().is_some());
}

#[test]
fn one_pod_at_a_time_is_taken_away() {
    let budget = rendered("PodDisruptionBudget");
    assert_eq!(budget["spec"]["maxUnavailable"].as_i64(), Some(1));
    let deployment = rendered("Deployment");
    let (ours, theirs) = (&budget["spec"]["selector"], &deployment["spec"]["selector"]);
    assert_eq!(ours["matchLabels"], theirs["matchLabels"]);
    assert!(deployment["spec"]["replicas"].as_i64().unwrap() > 1);
}
