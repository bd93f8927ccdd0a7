//! `anthropic/maxResultSizeChars` of a tool: the server's own, or what a rule says.

use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::session::{NEWEST, Session};
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_rule_says_how_large_results_may_be,
    our_own_tools_are_not_meant,
    without_a_rule_the_list_is_the_servers,
);

const BEFORE_TASKS: &str = "2025-06-18";

async fn on_session(client: Client, version: &'static str) -> Answer {
    let session = Session::open(client, version).await;
    session
        .request("list", "tools/list", json!({}))
        .send()
        .await
}

async fn modern(client: Client) -> Answer {
    client.request("tools/list", json!({})).send().await
}

/// The list of a client of each kind.
async fn lists(rig: &Rig) -> [Value; 4] {
    let lists = [
        modern(rig.client()).await,
        modern(rig.client().without_tasks()).await,
        on_session(rig.client(), NEWEST).await,
        on_session(rig.client(), BEFORE_TASKS).await,
    ];
    lists.map(Answer::into_result)
}

#[track_caller]
fn meta<'l>(list: &'l Value, tool: &str) -> &'l Value {
    let mut tools = list["tools"].as_array().unwrap().iter();
    &tools.find(|it| it["name"] == tool).unwrap()["_meta"]
}

async fn a_rule_says_how_large_results_may_be(era: Era) {
    let config = Config::auto("10s")
        .tool("echo", "max_result_size_chars = 500000")
        .tool("typed", "max_result_size_chars = 7");
    let rig = Rig::start(era, config).await;
    for list in lists(&rig).await {
        let echo = json!({"anthropic/maxResultSizeChars": 500_000});
        assert_eq!(*meta(&list, "echo"), echo);
        let typed = json!({"anthropic/maxResultSizeChars": 7, "com.example/kept": 1});
        assert_eq!(*meta(&list, "typed"), typed);
        assert!(meta(&list, "slow").is_null(), "{list}");
    }
}

async fn our_own_tools_are_not_meant(era: Era) {
    let terms = "companion_tools = true\nmax_result_size_chars = 9";
    let rig = Rig::start(era, Config::never().terms(terms)).await;
    for (list, has_ours) in lists(&rig).await.iter().zip([false, true, true, true]) {
        assert_eq!(
            *meta(list, "slow"),
            json!({"anthropic/maxResultSizeChars": 9})
        );
        let mut tools = list["tools"].as_array().unwrap().iter();
        let ours = tools.find(|tool| tool["name"] == "task_cancel");
        assert_eq!(ours.is_some(), has_ours, "{list}");
        assert!(ours.is_none_or(|ours| ours.get("_meta").is_none()));
    }
}

async fn without_a_rule_the_list_is_the_servers(era: Era) {
    let config = Config::never().terms("companion_tools = false");
    let rig = Rig::start(era, config).await;
    let direct = Client::of(rig.upstream.address());
    let (through, direct) = match era {
        Era::Modern => (modern(rig.client()).await, modern(direct).await),
        Era::Legacy => (
            on_session(rig.client(), BEFORE_TASKS).await,
            on_session(direct, BEFORE_TASKS).await,
        ),
    };
    assert_eq!(through.text, direct.text);
    for list in lists(&rig).await {
        let theirs = json!({"anthropic/maxResultSizeChars": 1000, "com.example/kept": 1});
        assert_eq!(*meta(&list, "typed"), theirs);
        assert!(meta(&list, "echo").is_null());
    }
}
