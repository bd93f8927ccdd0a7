//! The program as the rendered pod runs it, and as the kubelet sees it: from another network.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::eventually::eventually_blocking;
use crate::netns::Pod;
use crate::redis_server::RedisServer;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn the_rendered_pod_is_probed_and_drained_by_the_kubelet() {
    is_probed_and_drained(KUSTOMIZED);
}

#[test]
fn the_pod_of_the_chart_is_probed_and_drained_by_the_kubelet() {
    is_probed_and_drained(chart::MINIMAL);
}

fn is_probed_and_drained(file: &str) {
    let redis = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let pod = Pod::start();
    let sidecar = named(&pod_spec_of(file)["initContainers"], "raincheck").clone();
    let port = |port: &Yaml| {
        let by_name = |name| named(&sidecar["ports"], name)["containerPort"].as_i64();
        let number = port.as_i64().or_else(|| port.as_str().and_then(by_name));
        u64::try_from(number.unwrap()).unwrap()
    };
    let ask = |get: &Yaml| pod.get(port(&get["port"]), &our_own(get["path"].as_str().unwrap()));

    let mut raincheck = Running::start(&pod, environment(file, &sidecar, &redis.url()));
    let started = || ask(&sidecar["startupProbe"]["httpGet"]);
    let live = eventually_blocking(PATIENCE, "it lives", started);
    assert_eq!(live.0, 200, "{live:?}");
    assert_eq!(ask(&sidecar["livenessProbe"]["httpGet"]).unwrap().0, 200);
    let ready = &sidecar["readinessProbe"]["httpGet"];
    let missing = ask(ready).unwrap();
    assert_eq!(missing.0, 503, "the server is not there yet: {missing:?}");
    assert!(
        missing.1.contains(r#""missing":["upstream"]"#),
        "{missing:?}"
    );

    // Anything that answers HTTP will do for a server; this one is at hand.
    let _server = Running::start(&pod, server_environment());
    eventually_blocking(PATIENCE, "it is ready", || {
        ask(ready).filter(|answer| answer.0 == 200)
    });
    let main = port(&Yaml::String("raincheck".into()));
    assert_eq!(
        pod.get(main, "/").unwrap().0,
        403,
        "by address, not by its name"
    );

    let hook = pod_spec_of(file)["containers"][0]["lifecycle"]["preStop"]["httpGet"].clone();
    let probes = port(&hook["port"]);
    let token_only = hook["path"]
        .as_str()
        .unwrap()
        .replace("change-me", "change-it");
    assert_eq!(pod.get(probes, &token_only).unwrap().0, 404);
    assert_eq!(ask(ready).unwrap().0, 200, "a wrong token drains nothing");
    let began = Instant::now();
    let drained = ask(&hook).unwrap();
    assert_eq!(drained.0, 200, "{drained:?}");
    let delay = from_config_maps(file, &sidecar)["RAINCHECK_DRAIN__DELAY"].clone();
    let delay = u64::try_from(seconds(&delay)).unwrap();
    assert!(
        began.elapsed() >= Duration::from_secs(delay),
        "served on meanwhile"
    );

    assert_eq!(ask(ready).unwrap().0, 503);
    assert_eq!(ask(&sidecar["livenessProbe"]["httpGet"]).unwrap().0, 200);
    assert_eq!(
        pod.get(main, "/"),
        None,
        "nobody listens for clients any more"
    );
    assert!(raincheck.stop().success());
}

pub(super) const SEAL_KEY: &str =
    "1f2e3d4c5b6a79880f1e2d3c4b5a69781f2e3d4c5b6a79880f1e2d3c4b5a6978";

/// As somebody has it who read the comment: the token that everybody knows is refused.
pub(super) fn our_own(text: &str) -> String {
    text.replace("change-me", "our-own")
}

/// What the container's environment is once Kubernetes has looked everything up.
fn environment(file: &str, sidecar: &Yaml, redis: &str) -> Vec<(String, String)> {
    let settings = from_config_maps(file, sidecar).into_iter();
    let mut all: Vec<(String, String)> = settings
        .map(|(key, value)| (key, our_own(&value)))
        .collect();
    for variable in sidecar["env"].as_vec().unwrap() {
        let from = &variable["valueFrom"];
        let value = match variable["value"].as_str() {
            Some(value) => value,
            None if from["secretKeyRef"]["key"].as_str() == Some("url") => redis,
            None if from["secretKeyRef"]["key"].as_str() == Some("seal-key") => SEAL_KEY,
            None if from["fieldRef"]["fieldPath"].as_str() == Some("metadata.name") => {
                "tools-5d9c7b-x2x4z"
            }
            None if !from["fieldRef"].is_badvalue() => "tools",
            None => panic!("from nowhere: {variable:?}"),
        };
        all.push((variable["name"].as_str().unwrap().into(), value.into()));
    }
    all
}

/// Of a program that answers HTTP at the port of the server.
pub(super) fn server_environment() -> Vec<(String, String)> {
    [
        ("RAINCHECK_UPSTREAM__URL", "http://127.0.0.1:9/mcp"),
        ("RAINCHECK_LISTEN__ADDRESS", "127.0.0.1:8000"),
        ("RAINCHECK_STORE__URL", "memory:"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Killed when dropped.
pub(super) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub(super) fn start(pod: &Pod, environment: Vec<(String, String)>) -> Self {
        let mut command = pod.command(env!("CARGO_BIN_EXE_raincheck"));
        command.arg("run");
        Self::of(command, environment)
    }

    pub(super) fn of(mut command: Command, environment: Vec<(String, String)>) -> Self {
        let name = format!("rc-pod-{}.log", uuid::Uuid::new_v4().simple());
        let log = std::env::temp_dir().join(name);
        let file = File::create(&log).unwrap();
        let child = command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM. `ip netns exec` became the program, so the signal reaches it.
    pub(super) fn stop(&mut self) -> ExitStatus {
        assert!(
            Command::new("kill")
                .arg(self.pid().to_string())
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            println!("--- raincheck said ---\n{said}");
        }
        let _ = fs::remove_file(&self.log);
    }
}
