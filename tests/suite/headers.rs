//! What the headers say must be what the body says; found out before anything is stored or sent.

use serde_json::json;

use crate::support::client::Request;
use crate::support::{Client, Config, Era, Rig, encoded, in_both_eras};

in_both_eras!(
    headers_that_differ_from_the_body_are_refused,
    headers_that_say_the_same_in_other_words_are_accepted,
    tasks_may_be_asked_for_without_their_name,
    a_name_that_differs_is_refused_although_the_task_exists,
    parameters_are_mirrored_in_headers,
);

const MISMATCH: (u16, i64) = (400, -32020);

async fn headers_that_differ_from_the_body_are_refused(era: Era) {
    for config in [Config::always(), Config::never()] {
        let rig = Rig::start(era, config).await;
        let client = rig.client();
        let call = || client.calling("echo", json!({"text": "x"}));
        let wrong: [(&str, Request); 13] = [
            ("no method", call().without("mcp-method")),
            ("another method", call().header("mcp-method", "tools/list")),
            (
                "the method in capitals",
                call().header("mcp-method", "Tools/Call"),
            ),
            ("no name", call().without("mcp-name")),
            ("another name", call().header("mcp-name", "slow")),
            ("the name in capitals", call().header("mcp-name", "Echo")),
            ("the name twice", call().also("mcp-name", "echo")),
            ("the method twice", call().also("mcp-method", "tools/call")),
            ("an empty name", call().header("mcp-name", "")),
            (
                "a name that is no base64",
                call().header("mcp-name", "=?base64?%%%?="),
            ),
            (
                "another name in base64",
                call().header("mcp-name", &encoded("slow")),
            ),
            (
                "another version",
                call().header("mcp-protocol-version", "2026-12-31"),
            ),
            ("no version", call().without("mcp-protocol-version")),
        ];
        for (what, request) in wrong {
            let refused = request.send().await;
            assert_eq!(refused.refusal(), MISMATCH, "{what}: {}", refused.body);
            assert!(refused.json()["id"].is_number(), "{what}: {}", refused.body);
        }
        assert_eq!(rig.upstream.executions(), 0);
    }
}

async fn headers_that_say_the_same_in_other_words_are_accepted(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let call = || client.calling("echo", json!({"text": "x"}));
    call()
        .header("mcp-name", "  echo\t")
        .send()
        .await
        .into_task();
    call()
        .without("mcp-name")
        .also("MCP-Name", "echo")
        .send()
        .await
        .into_task();
    call()
        .header("mcp-name", &encoded("echo"))
        .send()
        .await
        .into_task();
    let umlaut = client
        .calling("écho", json!({}))
        .header("mcp-name", &encoded("écho"));
    umlaut.send().await.into_task();
}

async fn tasks_may_be_asked_for_without_their_name(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let get = client.asking("tasks/get", &task);
    get.clone().without("mcp-name").send().await.into_result();
    get.header("mcp-name", &encoded(&task.id))
        .send()
        .await
        .into_result();
    let update = client.updating(&task, json!({})).without("mcp-name");
    update.send().await.assert_acknowledged();
    let cancel = client.asking("tasks/cancel", &task).without("mcp-name");
    cancel.send().await.assert_acknowledged();
}

async fn a_name_that_differs_is_refused_although_the_task_exists(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let request = client.asking(method, &task);
        let other = uuid::Uuid::new_v4().to_string();
        let refused = request.clone().header("mcp-name", &other).send().await;
        assert_eq!(refused.refusal(), MISMATCH, "{method}");
        let refused = request.header("mcp-method", "tools/call").send().await;
        assert_eq!(refused.refusal(), MISMATCH, "{method}");
    }
    assert_eq!(client.get(&task).await["status"], "working");
}

/// A call of the tool whose parameters are mirrored.
fn regional(client: &Client) -> Request {
    client
        .calling(
            "with_header",
            json!({"text": "x", "region": "eu", "count": 42}),
        )
        .header("mcp-param-region", "eu")
        .header("mcp-param-count", "42")
}

async fn parameters_are_mirrored_in_headers(era: Era) {
    for config in [Config::always(), Config::auto("10s")] {
        let rig = Rig::start(era, config).await;
        let client = rig.client();
        let call = || regional(&client);
        let wrong: [(&str, Request); 6] = [
            ("missing", call().without("mcp-param-region")),
            ("differs", call().header("mcp-param-region", "us")),
            ("in capitals", call().header("mcp-param-region", "EU")),
            (
                "no base64",
                call().header("mcp-param-region", "=?base64?*?="),
            ),
            ("another number", call().header("mcp-param-count", "43")),
            ("no number", call().header("mcp-param-count", "x")),
        ];
        for (what, request) in wrong {
            let refused = request.send().await;
            assert_eq!(refused.refusal(), MISMATCH, "{what}: {}", refused.body);
        }
        assert_eq!(rig.upstream.executions(), 0);
        assert_eq!(call().send().await.status, 200);
        rig.upstream
            .until("with_header", "ran", |tally| tally.finished == 1)
            .await;
        let absent = client.calling("with_header", json!({"text": "x"}));
        assert_eq!(absent.send().await.status, 200, "no value, no header");
    }
}
