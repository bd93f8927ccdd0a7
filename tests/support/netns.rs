//! Two network namespaces with a cable between them: a pod, and the kubelet that probes it.

use std::process::{Command, Output, Stdio};

/// The pod's address as the kubelet sees it.
pub(crate) const POD: &str = "10.231.0.2";
const KUBELET: &str = "10.231.0.1";

/// The namespaces and the cable are removed when this is dropped. The test fails if namespaces cannot be
/// made, because skipping it would look like success.
#[derive(Debug)]
pub(crate) struct Pod {
    pod: String,
    kubelet: String,
}

impl Pod {
    pub(crate) fn start() -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let random = &random[..6];
        let pod = Self {
            pod: format!("rc-pod-{random}"),
            kubelet: format!("rc-let-{random}"),
        };
        // An interface's name has 15 letters.
        let (inner, outer) = (format!("rcp{random}"), format!("rck{random}"));
        ip(&format!("netns add {}", pod.pod));
        ip(&format!("netns add {}", pod.kubelet));
        let (p, k) = (&pod.pod, &pod.kubelet);
        ip(&format!(
            "link add {inner} netns {p} type veth peer name {outer} netns {k}"
        ));
        for (namespace, interface, address) in [(p, &inner, POD), (k, &outer, KUBELET)] {
            ip(&format!(
                "-n {namespace} addr add {address}/30 dev {interface}"
            ));
            ip(&format!("-n {namespace} link set {interface} up"));
            ip(&format!("-n {namespace} link set lo up"));
        }
        pod
    }

    /// A program inside the pod.
    pub(crate) fn command(&self, program: &str) -> Command {
        inside(&self.pod, program)
    }

    /// The status and body that the kubelet gets from the pod; `None`: nothing listens there.
    pub(crate) fn get(&self, port: u64, path: &str) -> Option<(u16, String)> {
        let script = format!(
            "exec 3<>/dev/tcp/{POD}/{port} || exit 7\n\
             printf 'GET {path} HTTP/1.1\\r\\nHost: {POD}:{port}\\r\\nConnection: close\\r\\n\\r\\n' >&3\n\
             cat <&3"
        );
        let mut bash = inside(&self.kubelet, "bash");
        let output = bash
            .args(["-c", &script])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        answer(&output)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for name in [&self.pod, &self.kubelet] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn inside(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

fn ip(arguments: &str) {
    let made = Command::new("ip").args(arguments.split(' ')).output();
    let made =
        made.expect("`ip` (iproute2) must be installed: probes are tested from another network");
    assert!(
        made.status.success(),
        "network namespaces need root and a kernel that has them: ip {arguments}: {}",
        String::from_utf8_lossy(&made.stderr)
    );
}

fn answer(output: &Output) -> Option<(u16, String)> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Some((status, body.to_owned()))
}
