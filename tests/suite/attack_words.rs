//! Attacks on those who read what raincheck says: names and texts that act on a terminal, and names that use up the labels of
//! the metrics.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::{Client, Request, Task};
use crate::support::issuer::Issuer;
use crate::support::operator::{OperatorEvents, raincheck};
use crate::support::session::{NEWEST, Session, initialize};
use crate::support::{Config, Era, PATIENCE, Proxy, Rig, encoded, in_both_eras, within};

in_both_eras!(
    nothing_that_others_say_acts_on_what_shows_it,
    names_of_no_tool_use_up_no_label,
);

/// Clears a screen, ends a string and a line, begins a command of C1, and turns the rest of a line around.
const HOSTILE: &str =
    "w\u{1b}[2J\r\0\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\n0 ERROR x";

/// Fails if the text has a character that acts on what shows it.
fn assert_shown(place: &str, text: &str) {
    let acts = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let found: Vec<char> = text.chars().filter(|c| acts(*c)).collect();
    assert!(found.is_empty(), "{place} has {found:?}: {text:?}");
    let is_forged = |line: &str| line.starts_with("0 ERROR x");
    assert!(
        !text.lines().any(is_forged),
        "{place} has a forged line: {text:?}"
    );
}

/// A call by a client that names itself so, too.
fn calling(client: &Client, tool: &str, arguments: Value) -> Request {
    let call = client
        .calling("name", arguments)
        .header("mcp-name", &encoded(tool));
    call.edit(|message| {
        message["params"]["name"] = json!(tool);
        let meta = &mut message["params"]["_meta"];
        meta["progressToken"] = json!("t");
        let info = json!({"name": HOSTILE, "version": HOSTILE, "title": HOSTILE});
        meta["io.modelcontextprotocol/clientInfo"] = info;
    })
}

/// Reads all that operators read of this proxy and these tasks.
async fn assert_nothing_acts(proxy: &Proxy, tasks: &[&Task]) {
    let operators = Client::of(proxy.operators().await);
    let mut pages = vec!["/metrics".to_owned(), "/tasks".to_owned()];
    let mut commands = vec![vec!["tasks", "list"], vec!["tasks", "list", "--json"]];
    for task in tasks {
        pages.push(format!("/tasks/{}?tree=true", task.id));
        commands.push(vec!["tasks", "show", &task.id]);
        commands.push(vec!["tasks", "show", "--json", &task.id]);
    }
    for path in pages {
        let page = operators.page(&path).await.of_status(200).unwrap();
        assert_shown(&path, &page.body);
    }
    for command in commands {
        let output = raincheck(proxy, &command).await;
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command:?}: {said}");
        assert_shown(&format!("{command:?}"), &said);
        assert_shown("stderr", &String::from_utf8(output.stderr).unwrap());
    }
    assert_shown("the log", &proxy.log());
}

async fn nothing_that_others_say_acts_on_what_shows_it(era: Era) {
    for form in ["text", "json"] {
        let issuer = Issuer::start().await;
        let config = issuer
            .wanted_by(Config::always(), "label_claim = \"email\"")
            .section("admin", "listen = \"127.0.0.1:0\"\nshow_payloads = true");
        let lines = format!("access_log = true\nlog = \"debug\"\nformat = {form:?}");
        let rig = Rig::start(era, config.section("telemetry", &lines)).await;
        let fetched = "the keys of an issuer were fetched";
        rig.proxy.until_said(fetched, 1).await;
        let mut events = OperatorEvents::of(&rig.proxy).await;

        let token = issuer.token_with("alice", json!({"email": HOSTILE}), json!({}));
        let client = rig.client().named(token);
        let name = format!("look{HOSTILE}");
        let unknown = calling(&client, &name, json!({"a": HOSTILE}))
            .send()
            .await
            .into_task();
        client.until(&unknown, "failed").await;
        let echo = calling(&client, "echo", json!({"text": HOSTILE}))
            .send()
            .await
            .into_task();
        client.until(&echo, "completed").await;
        let asking = json!({"word": HOSTILE, "then": "error"});
        let asked = calling(&client, "confide", asking).send().await.into_task();
        client.until(&asked, "input_required").await;
        if era == Era::Legacy {
            let mut hello = initialize(NEWEST, json!({}));
            hello["params"]["clientInfo"] = json!({"name": HOSTILE, "version": HOSTILE});
            let (session, _) = Session::greeting(client.clone(), NEWEST, &hello).await;
            let call = session.calling(7, &name, json!({"a": HOSTILE}));
            assert!(call.send().await.status < 500);
        }
        let tasks = [&unknown, &echo, &asked];
        assert_nothing_acts(&rig.proxy, &tasks).await;

        // A reader of the JSON loses nothing.
        let operators = Client::of(rig.proxy.operators().await);
        let shown = operators.page(&format!("/tasks/{}", unknown.id)).await;
        assert_eq!(shown.json()["tool"], *name, "{}", shown.body);

        let answers = operators.page(&format!("/tasks/{}", asked.id)).await.json();
        let key = answers["open_questions"][0]["key"]
            .as_str()
            .unwrap()
            .to_owned();
        let answer = json!({ key: {"action": "accept", "content": {"name": HOSTILE}} });
        let path = format!("/tasks/{}/answer", asked.id);
        let answered = operators.http(Method::POST, &path).body(answer.to_string());
        let answered = answered.send().await;
        assert_shown("an answer", &answered.body);
        assert_eq!(answered.status, 200, "{}", answered.body);
        client.until(&asked, "failed").await;
        assert_nothing_acts(&rig.proxy, &tasks).await;
        events.until_times(3, "event: ended").await;
        let (_, body) = events.seen.split_once("\r\n\r\n").unwrap();
        assert_shown("the events", &body.replace("\r\n", "\n"));
    }
}

/// The attack of a client that calls 260 tools that do not exist: afterwards the real tools were `other` until a restart.
async fn names_of_no_tool_use_up_no_label(era: Era) {
    for (config, has_tasks) in [
        (Config::never(), true),
        (Config::never(), false),
        (Config::auto("10s"), true),
        (Config::always(), true),
    ] {
        let config = config.section("admin", "listen = \"127.0.0.1:0\"");
        let rig = Rig::start(era, config).await;
        let client = if has_tasks {
            rig.client()
        } else {
            rig.client().without_tasks()
        };
        let calls = (0..260).map(|number| {
            let call = client.calling(&format!("invented-{number}"), json!({}));
            async move { drop(call.send().await) }
        });
        let calling = futures_util::stream::iter(calls).buffer_unordered(20);
        within(PATIENCE, "260 calls", calling.collect::<Vec<()>>()).await;
        for _ in 0..2 {
            let call = client.calling("echo", json!({"text": "x"}));
            assert_eq!(call.send().await.status, 200);
        }
        rig.upstream
            .until("echo", "run", |tally| tally.finished > 1)
            .await;
        let operators = Client::of(rig.proxy.operators().await);
        let page = operators.page("/metrics").await.body;
        let invented = page.split("invented-").skip(1);
        let invented: BTreeSet<_> = invented.filter_map(|rest| rest.split('"').next()).collect();
        assert!(invented.len() <= 50, "{page}");
        let named = page.lines().filter(|line| line.contains("\"echo\""));
        assert!(named.count() > 0, "{page}");
        assert!(page.contains("\"other\""), "{page}");
    }
}
