//! A server that is no MCP server, or that is not there: what the program says of it.

use serde_json::json;

use crate::scripted::{Act, Scripted};
use crate::support::{Client, Config, Era, PATIENCE, Upstream, eventually};

/// Answers that no MCP server gives, and what the log says of them.
const NO_MCP: [(&str, &str); 5] = [
    (
        "404 Not Found\r\ncontent-length: 9\r\n\r\nnot found",
        "HTTP 404",
    ),
    (
        "200 OK\r\ncontent-type: text/html\r\ncontent-length: 14\r\n\r\n<h1>Hello</h1>",
        "HTTP 200 OK (text/html): Hello",
    ),
    (
        "500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops",
        "HTTP 500",
    ),
    (
        "301 Moved Permanently\r\nlocation: http://elsewhere.example/\r\ncontent-length: 0\r\n\r\n",
        "HTTP 301",
    ),
    (
        "502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 10\r\n\r\n<p>bad</p>",
        "HTTP 502",
    ),
];

#[tokio::test]
async fn what_is_no_mcp_server_is_not_taken_for_one_until_it_is() {
    for (answer, said) in NO_MCP {
        for era in ["auto", "legacy"] {
            let answer = answer.replacen("\r\n", "\r\nconnection: close\r\n", 1);
            let answer = format!("HTTP/1.1 {answer}");
            let server = Scripted::start(move |_| vec![Act::send(answer.clone()), Act::Close]);
            let server = server.await;
            let config = Config::always().probed("");
            let config = config.section("upstream", &format!("era = {era:?}"));
            let proxy = config.start(&server.url()).await;
            let probes = Client::of(proxy.probes().await);
            eventually(PATIENCE, "a degraded state", async || {
                let page = probes.page("/readyz").await.json();
                let is_so = page["degraded"] == "upstream_not_mcp";
                (is_so && page["missing"] == json!(["upstream"]))
                    .then_some(())
                    .ok_or(page)
            })
            .await;
            proxy.until_said("no MCP server", 1).await;
            let log = proxy.log();
            assert!(log.contains(said), "{said}: {log}");
            assert!(!log.contains("the server answers"), "{log}");

            let address = server.address();
            drop(server);
            let _upstream = Upstream::start_at(Era::Legacy, address).await;
            let ready = probes.until_page("/readyz", 200).await;
            assert_eq!(ready.json()["degraded"], json!(null));
        }
    }
}

#[tokio::test]
async fn a_program_that_does_not_exist_ends_the_start() {
    for (program, why) in [
        ("no-such-program-anywhere", "is not on the PATH"),
        ("./no/such/program", "does not exist"),
    ] {
        for command in ["run", "stdio"] {
            let ended = tokio::process::Command::new(env!("CARGO_BIN_EXE_raincheck"))
                .args([command, "--store", "memory:", "--", program])
                .output()
                .await
                .unwrap();
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(!ended.status.success());
            assert!(
                said.contains(&format!("upstream.command: {program} {why}")),
                "{said}"
            );
        }
    }
}

/// The error of a call that the server refused has the call's own id, whether the call passes or becomes a task.
#[tokio::test]
async fn a_call_that_a_gateway_refuses_says_so_under_its_id() {
    for config in [Config::never(), Config::always(), Config::auto("5s")] {
        let upstream = Upstream::start(Era::Modern).await;
        let proxy = config.start(&upstream.url()).await;
        let client = Client::of(proxy.address());
        let list = client.request("tools/list", json!({})).send().await;
        assert_eq!(list.status, 200);
        upstream.end_calls_with(413);
        let call = client.calling("echo", json!({"text": "x"}));
        let answer = call.send().await;
        if answer.status == 413 {
            // The call has passed, and its refusal with it.
            continue;
        }
        let answer = answer.json();
        let error = match answer["result"]["taskId"].as_str() {
            Some(_) => {
                proxy.until_said("HTTP 413", 1).await;
                continue;
            }
            None => &answer["error"],
        };
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("HTTP 413 Payload Too Large"), "{message}");
        assert!(!message.contains("can be called again"), "{message}");
        assert_eq!(error["data"]["io.raincheck/status"], json!(413));
        assert_ne!(answer["id"], json!(null));
    }
}
