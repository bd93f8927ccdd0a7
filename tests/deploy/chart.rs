//! The chart, linted and rendered by helm, and all manifests against the schemas of Kubernetes. Both programs are those of
//! `tests/setup.sh`.

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

/// Runs a program of `tests/setup.sh`.
fn run(program: &str, arguments: &[&str]) -> Output {
    let cache = std::env::var("RAINCHECK_TEST_CACHE").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cache/raincheck-tests")
    });
    let path = Path::new(&cache)
        .join("python-kubernetes/bin")
        .join(program);
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

#[test]
fn what_the_chart_cannot_do_it_refuses_with_words() {
    for (set, words) in [
        ("server.image=", "server.image is missing"),
        ("drain.token=", "drain.token is missing"),
        (
            "server.lifecycle.preStop.sleep.seconds=5",
            "raincheck needs this hook",
        ),
        (
            "raincheck.settings.RAINCHECK_DRAIN__GRACE=9s",
            "write drain.graceSeconds in place of",
        ),
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
        let values = "helm/raincheck/ci/minimal.yaml";
        let refused = run(
            "helm",
            &[
                "template",
                "tools",
                "helm/raincheck",
                "-f",
                values,
                "--set",
                set,
            ],
        );
        let said = printed(&refused);
        assert!(
            !refused.status.success() && said.contains(words),
            "{set}: {said}"
        );
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
        // The Prometheus operator's kind has no schema there.
        let unknown = said.lines().filter(|line| line.starts_with("WARN"));
        assert!(
            unknown.clone().all(|line| line.contains("kind PodMonitor")),
            "{said}"
        );
        assert_eq!(unknown.count(), 2, "{said}");
    }
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
        all
    };
    assert_eq!(settings(MINIMAL, &ours), settings(KUSTOMIZED, &theirs));
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
    let stateful = documents("helm/rendered-statefulset.yaml");
    assert_eq!(
        only(stateful, "StatefulSet")["spec"]["replicas"].as_i64(),
        Some(3)
    );
}
