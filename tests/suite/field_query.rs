//! The query of `upstream.url` is the operator's: it goes with every request, and a client's own parameters go only
//! where `upstream.forward_query` names them.

use hyper::Method;
use serde_json::json;

use crate::sse_server::SseServer;
use crate::support::client::Request;
use crate::support::session::Session;
use crate::support::upstream::{Received, Tally};
use crate::support::{Client, Config, Era, Upstream, in_both_eras};

in_both_eras!(no_request_replaces_what_the_operator_wrote);

const OPERATORS: &str = "toolsets=core,alerting&profile=readonly";

/// What clients write after the path, and what of it the server gets if `tenant` is forwarded.
const WRITTEN: [(&str, &str); 5] = [
    ("profile=admin&who=bob", ""),
    ("Profile=admin&PROFILE=admin&profile[]=admin", ""),
    ("pro%66ile=admin&x=1;profile=admin", ""),
    ("tenant=a&profile=admin", "&tenant=a"),
    (
        "%74enant=a%26profile%3Dadmin",
        "&tenant=a%26profile%3Dadmin",
    ),
];

fn forwarding(config: Config, forwards: bool) -> Config {
    if forwards {
        config.section("upstream", "forward_query = [\"tenant\"]")
    } else {
        config
    }
}

async fn no_request_replaces_what_the_operator_wrote(era: Era) {
    for (config, forwards) in [
        (Config::never(), false),
        (Config::always(), false),
        (Config::never(), true),
        (Config::always(), true),
    ] {
        let upstream = Upstream::start(era).await;
        let url = format!("{}?{OPERATORS}", upstream.url());
        let proxy = forwarding(config, forwards).start(&url).await;
        let client = Client::of(proxy.address());
        for (number, (written, forwarded)) in (1..).zip(WRITTEN) {
            let before = upstream.received().len();
            let list = client.request("tools/list", json!({}));
            let fast = client.clone().without_tasks();
            let fast = fast.calling("echo", json!({"text": "x"}));
            let carried = client.calling("echo", json!({"text": "x"}));
            for request in [list, fast, carried] {
                let answer = request.query(written).send().await;
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
            let ended = |tally: Tally| tally.finished == 2 * number;
            upstream.until("echo", "both calls", ended).await;
            let all = upstream.received().split_off(before);
            let expected = if forwards { forwarded } else { "" };
            for one in all {
                let query = one.query.as_deref().unwrap_or_default();
                let is_of_client = one.text().contains("tools/call");
                // raincheck asks for itself, too.
                let is_ours = !is_of_client && query == OPERATORS;
                assert!(
                    is_ours || query == format!("{OPERATORS}{expected}"),
                    "{era:?} {written}: {one:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_session_has_the_operators_query_from_its_first_to_its_last_request() {
    for (config, forwards) in [(Config::never(), false), (Config::always(), true)] {
        let upstream = Upstream::start(Era::Legacy).await;
        let url = format!("{}?{OPERATORS}", upstream.url());
        let proxy = forwarding(config, forwards).start(&url).await;
        let client = Client::of(proxy.address());
        let session = Session::open(client, "2025-11-25").await;
        let before = upstream.received().len();
        let (written, forwarded) = WRITTEN[3];
        let query = |request: Request| request.query(written);
        let call = query(session.calling(1, "echo", json!({"text": "x"})));
        assert_eq!(call.send().await.status, 200);
        let stream = query(session.http(Method::GET)).stream().await;
        assert_eq!(stream.status, 200);
        drop(stream);
        assert!(query(session.ending()).send().await.status < 300);
        let expected = if forwards { forwarded } else { "" };
        let expected = format!("{OPERATORS}{expected}");
        let seen = upstream.received().split_off(before);
        let has = |one: &Received| one.query.as_deref() == Some(&*expected);
        for verb in [Method::POST, Method::GET, Method::DELETE] {
            assert!(
                seen.iter().any(|one| one.verb == verb && has(one)),
                "{verb}"
            );
        }
        for one in seen {
            // raincheck has requests and sessions of its own, too.
            let is_ours =
                !one.text().contains("tools/call") && one.query.as_deref() == Some(OPERATORS);
            assert!(has(&one) || is_ours, "{one:?}");
        }
    }
}

/// The server names the endpoint of a stream, and its own parameters stay as they are.
#[tokio::test]
async fn an_endpoint_over_sse_has_the_operators_query_beside_its_own() {
    let server = SseServer::start().await;
    let url = format!("{}?{OPERATORS}&sessionId=77", server.url());
    let config = Config::always().section("upstream", "forward_query = [\"tenant\"]");
    let proxy = config.start(&url).await;
    let client = Client::of(proxy.address());
    let call = client.calling("line", json!({}));
    let task = call.query("tenant=a&sessionId=66&profile=admin").send();
    let task = task.await.into_task();
    client.until(&task, "completed").await;
    let queries = server.queries();
    let posted: Vec<_> = queries
        .iter()
        .filter(|query| query.starts_with("sessionId="))
        .collect();
    assert!(!posted.is_empty());
    for query in posted {
        assert!(query.ends_with(&format!("&{OPERATORS}")), "{query}");
        assert!(!query.contains("77") && !query.contains("66"), "{query}");
    }
    let opened = format!("{OPERATORS}&sessionId=77");
    assert!(
        queries.iter().any(|query| query.starts_with(&opened)),
        "{queries:?}"
    );
}
