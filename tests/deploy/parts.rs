//! The optional parts, and the component on workloads that others wrote.

use std::process::Command;

use super::*;

const KUSTOMIZATION: &str = "resources: [workloads.yaml]\ncomponents: [../component]\n\
    configMapGenerator:\n- name: raincheck\n  literals: [RAINCHECK_DRAIN__TOKEN=our-own, RAINCHECK_DRAIN__GRACE=9s]\n";

/// These workloads with the component. `None`: there is no kubectl here.
fn kustomized(workloads: &str) -> Option<Result<Vec<Yaml>, String>> {
    kustomized_by(KUSTOMIZATION, workloads)
}

/// The same by a kustomization in a folder of its own.
fn kustomized_by(kustomization: &str, workloads: &str) -> Option<Result<Vec<Yaml>, String>> {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = root.join(format!("rc-kustomize-{}", uuid::Uuid::new_v4().simple()));
    let component = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes/component");
    for name in ["app", "component/hook"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    for name in [
        "kustomization.yaml",
        "sidecar.yaml",
        "drain.yaml",
        "hook/kustomization.yaml",
    ] {
        let copied = fs::copy(component.join(name), folder.join("component").join(name));
        copied.unwrap();
    }
    fs::write(folder.join("app/kustomization.yaml"), kustomization).unwrap();
    fs::write(folder.join("app/workloads.yaml"), workloads).unwrap();
    let run = Command::new("kubectl")
        .args(["kustomize"])
        .arg(folder.join("app"))
        .output();
    fs::remove_dir_all(&folder).unwrap();
    let output = run.ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(if output.status.success() {
        Ok(YamlLoader::load_from_str(&text(&output.stdout)).unwrap())
    } else {
        Err(text(&output.stderr))
    })
}

/// A workload with this beside its container's image.
fn workload(kind: &str, name: &str, container: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  template:\n    metadata:\n      \
         labels: {{raincheck-namespace: {name}}}\n    spec:\n      containers:\n      - {{name: server, image: x{container}}}\n"
    )
}

#[test]
fn several_workloads_of_both_kinds_get_it_and_keep_what_they_have() {
    let after_start = ", lifecycle: {postStart: {exec: {command: [warm-up]}}}";
    let all = [
        workload("Deployment", "one", after_start),
        workload("Deployment", "two", ""),
        workload("StatefulSet", "three", ""),
    ];
    let Some(rendered) = kustomized(&all.concat()) else {
        println!("no kubectl here: nothing was rendered");
        return;
    };
    let mut workloads = rendered.unwrap();
    workloads.retain(|object| !object["spec"]["template"].is_badvalue());
    assert_eq!(workloads.len(), 3);
    for object in &workloads {
        let pod = &object["spec"]["template"]["spec"];
        let lifecycle = &pod["containers"][0]["lifecycle"];
        let path = lifecycle["preStop"]["httpGet"]["path"].as_str();
        assert_eq!(path, Some("/drain/our-own"), "{object:?}");
        let is_one = object["metadata"]["name"].as_str() == Some("one");
        assert_eq!(!lifecycle["postStart"].is_badvalue(), is_one, "{object:?}");
        assert!(!named(&pod["initContainers"], "raincheck")["image"].is_badvalue());
    }
}

#[test]
fn a_pre_stop_hook_of_the_server_is_refused_and_not_replaced() {
    for hook in [
        "exec: {command: [flush]}",
        "httpGet: {path: /flush, port: 80}",
        "sleep: {seconds: 5}",
    ] {
        let own = format!(", lifecycle: {{preStop: {{{hook}}}}}");
        let Some(rendered) = kustomized(&workload("Deployment", "one", &own)) else {
            println!("no kubectl here: nothing was rendered");
            return;
        };
        let refused = rendered.unwrap_err();
        let words = "testing value /spec/template/spec/containers/0/lifecycle/preStop failed";
        assert!(refused.contains(words), "{refused}");
        assert!(text("kubernetes/component/drain.yaml").contains("lifecycle/preStop failed"));
    }
}

#[test]
fn what_kustomize_says_of_a_mistake_is_explained() {
    let page = text("../docs/operations.md");
    let workloads = workload("Deployment", "one", "");
    let mistakes = [
        (
            "name: raincheck",
            "name: settings",
            "nothing selected by ConfigMap",
        ),
        (
            "RAINCHECK_DRAIN__TOKEN=our-own, ",
            "",
            "is missing for replacement source ConfigMap",
        ),
        (
            "[workloads.yaml]\ncomponents: [../component]",
            "[workloads.yaml, ../component]",
            "expected kind != 'Component'",
        ),
    ];
    for (right, wrong, words) in mistakes {
        let kustomization = KUSTOMIZATION.replace(right, wrong);
        assert_ne!(kustomization, KUSTOMIZATION, "{right}");
        let Some(rendered) = kustomized_by(&kustomization, &workloads) else {
            println!("no kubectl here: nothing was rendered");
            return;
        };
        let refused = rendered.unwrap_err();
        assert!(refused.contains(words), "{refused}");
        assert!(page.contains(&format!("| `{words}` |")), "{words}");
    }
}

fn full(kind: &str) -> Yaml {
    only(documents("kubernetes/rendered-full.yaml"), kind)
}

fn full_sidecar() -> Yaml {
    let pod = &full("Deployment")["spec"]["template"]["spec"];
    named(&pod["initContainers"], "raincheck").clone()
}

#[test]
fn rules_come_from_a_file_that_raincheck_takes() {
    let sidecar = full_sidecar();
    let args: Vec<&str> = sidecar["args"]
        .as_vec()
        .unwrap()
        .iter()
        .filter_map(Yaml::as_str)
        .collect();
    let path = args.last().unwrap();
    let mount = sidecar["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let name = path.strip_prefix(&format!("{mount}/")).unwrap();
    let mut maps = documents("kubernetes/rendered-full.yaml");
    maps.retain(|map| !map["data"][name].is_badvalue());
    let volume = &full("Deployment")["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["configMap"]["name"], maps[0]["metadata"]["name"]);
    let flags = raincheck::config::load::Flags {
        config: Some(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("deploy/kubernetes/full")
                .join(name),
        ),
        ..Default::default()
    };
    let environment = [
        ("RAINCHECK_UPSTREAM__URL", "http://127.0.0.1:8000/mcp"),
        ("RAINCHECK_STORE__URL", "memory:"),
    ];
    let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned()));
    raincheck::config::load::load(&flags, &environment).unwrap();
}

/// Clients get to raincheck only, operators to the admin listener only, and nobody to the server.
#[test]
fn the_network_opens_what_raincheck_listens_at() {
    let policy = full("NetworkPolicy");
    let label = &policy["spec"]["podSelector"]["matchExpressions"][0]["key"];
    let labels = full("Deployment")["spec"]["template"]["metadata"]["labels"].clone();
    assert!(!labels[label.as_str().unwrap()].is_badvalue());
    let ports: Vec<i64> = policy["spec"]["ingress"]
        .as_vec()
        .unwrap()
        .iter()
        .map(|rule| rule["ports"][0]["port"].as_i64().unwrap())
        .collect();
    let named_port = |name| named(&full_sidecar()["ports"], name)["containerPort"].as_i64();
    assert_eq!(
        ports,
        [
            named_port("raincheck").unwrap(),
            named_port("admin").unwrap()
        ]
    );
    for rule in policy["spec"]["ingress"].as_vec().unwrap() {
        assert!(!rule["from"][0].is_badvalue(), "not from everywhere");
    }
}

#[test]
fn the_monitor_reads_the_admin_listener_with_its_token() {
    let endpoint = full("PodMonitor")["spec"]["podMetricsEndpoints"][0].clone();
    let port = named(&full_sidecar()["ports"], endpoint["port"].as_str().unwrap())["containerPort"]
        .as_i64();
    let listens = named(&full_sidecar()["env"], "RAINCHECK_ADMIN__LISTEN")["value"].clone();
    assert_eq!(
        listens.as_str(),
        Some(&*format!("0.0.0.0:{}", port.unwrap()))
    );
    let token =
        named(&full_sidecar()["env"], "RAINCHECK_ADMIN__TOKEN")["valueFrom"]["secretKeyRef"]
            .clone();
    let said = &endpoint["authorization"]["credentials"];
    assert_eq!(
        (&said["name"], &said["key"]),
        (&token["name"], &token["key"])
    );
}

#[test]
fn the_scaler_counts_a_metric_that_there_is_and_takes_one_pod_at_a_time() {
    let scaler = full("HorizontalPodAutoscaler");
    let deployment = full("Deployment");
    assert_eq!(
        scaler["spec"]["scaleTargetRef"]["name"],
        deployment["metadata"]["name"]
    );
    let metric = scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
        .as_str()
        .unwrap();
    assert!(watching::exported().contains(metric), "{metric}");
    let policy = &scaler["spec"]["behavior"]["scaleDown"]["policies"][0];
    assert_eq!(policy["value"].as_i64(), Some(1));
}
