//! Answers that do not reach the server, whose call has begun.

use std::path::PathBuf;

use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use crate::relay::over_socket;
use crate::support::client::{Client, Task};
use crate::support::{Config, Era, Proxy, Rig, TempDir, Upstream};

/// Behind a socket that can be taken away: new connections are refused, and streams stay.
struct Away {
    proxy: Proxy,
    upstream: Upstream,
    files: TempDir,
    _relay: DropGuard,
}

impl Away {
    async fn start(era: Era) -> Self {
        let upstream = Upstream::start(era).await;
        upstream.close_connections();
        let files = TempDir::new();
        let socket = files.path().join("s");
        let relay = over_socket(&socket, upstream.address());
        let proxy = Config::always()
            .section("telemetry", "log = \"debug\"")
            .start(&format!("unix:{}", socket.display()))
            .await;
        Self {
            proxy,
            upstream,
            files,
            _relay: relay,
        }
    }

    fn sockets(&self) -> (PathBuf, PathBuf) {
        (self.files.path().join("s"), self.files.path().join("away"))
    }

    fn go(&self) {
        let (socket, away) = self.sockets();
        std::fs::rename(socket, away).unwrap();
    }

    fn come_back(&self) {
        let (socket, away) = self.sockets();
        std::fs::rename(away, socket).unwrap();
    }

    fn client(&self) -> Client {
        Client::of(self.proxy.address())
    }
}

/// Answers everything that the task asks.
async fn answer(client: &Client, task: &Task) {
    let state = client.until(task, "input_required").await;
    let keys = state["inputRequests"].as_object().unwrap().keys();
    let ada = json!({"action": "accept", "content": {"name": "Ada"}});
    let answers: Value = keys.map(|key| (key.clone(), ada.clone())).collect();
    client.update(task, answers).await.assert_acknowledged();
}

async fn assert_may_have_run(client: &Client, task: &Task, reason: &str) {
    let state = client.until(task, "failed").await;
    let data = &state["error"]["data"];
    assert_eq!(data["io.raincheck/reason"], reason, "{state}");
    assert_eq!(data["io.raincheck/effect"], "unknown", "{state}");
}

#[tokio::test]
async fn an_answer_that_finds_no_way_to_the_server_goes_again() {
    let away = Away::start(Era::Legacy).await;
    let client = away.client();
    let task = client.call("ask", json!({})).await.into_task();
    client.until(&task, "input_required").await;
    away.go();
    answer(&client, &task).await;
    // Each attempt to send it has three to connect.
    away.proxy
        .until_said("no connection to the upstream", 4)
        .await;
    assert_eq!(client.get(&task).await["status"], "working");
    away.come_back();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
    assert_eq!(away.upstream.tally("ask").started, 1);
}

#[tokio::test]
async fn a_call_whose_answer_is_refused_is_cancelled_at_the_server() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    rig.upstream.refuse_answers();
    answer(&client, &task).await;
    assert_may_have_run(&client, &task, "upstream_http").await;
    rig.upstream
        .until("ask", "cancelled", |tally| tally.cancelled == 1)
        .await;
}

#[tokio::test]
async fn a_leg_that_is_not_sent_does_not_undo_the_leg_before_it() {
    for (is_gone, reason) in [
        (true, "upstream_unreachable"),
        (false, "upstream_unauthorized"),
    ] {
        let away = Away::start(Era::Modern).await;
        let client = away.client();
        let ask = || {
            let ask = client.calling("ask", json!({}));
            ask.header("idempotency-key", "k").send()
        };
        let task = ask().await.into_task();
        client.until(&task, "input_required").await;
        if is_gone {
            away.go();
        } else {
            away.upstream.challenge();
        }
        answer(&client, &task).await;
        assert_may_have_run(&client, &task, reason).await;
        assert_eq!(ask().await.into_task().id, task.id);
    }
}
