//! A model that forgot its ticket finds its call again, and no other client finds it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::sealed::files_of;
use crate::stdio_front::{Launched, modern};
use crate::support::client::Client;
use crate::support::session::{NEWEST, Session};
use crate::support::{Config, Era, Rig, TempDir, Upstream, in_both_eras};

in_both_eras!(
    a_caller_finds_its_call_again,
    a_session_finds_its_call_again,
    a_client_on_a_pipe_finds_its_call_again,
    a_client_that_nothing_tells_from_others_is_told_so,
    what_is_listed_is_short,
    what_was_asked_for_is_sealed,
);

/// Tickets after a moment for what waits.
fn config() -> Config {
    let terms = "companion_tools = true\nfallback_after = \"20s\"";
    let auto = Config::auto("10s").terms(terms);
    auto.tool("{held,steps}", "fallback_after = \"100ms\"")
}

fn report() -> Value {
    json!({"nonce": "n", "report": "of Ada"})
}

const ASKED_FOR: &str = r#"for held {"nonce":"n","report":"of Ada"}"#;

/// The result of a call of a tool.
trait Model {
    async fn use_tool(&mut self, tool: &str, arguments: Value) -> Value;
}

impl Model for Client {
    async fn use_tool(&mut self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.into_result()
    }
}

impl Model for Session {
    async fn use_tool(&mut self, tool: &str, arguments: Value) -> Value {
        self.calling(7, tool, arguments).send().await.into_result()
    }
}

/// A client that launched raincheck.
struct OnPipe {
    launched: Launched,
    era: Era,
    id: u32,
}

impl Model for OnPipe {
    async fn use_tool(&mut self, tool: &str, arguments: Value) -> Value {
        self.id += 1;
        let params = json!({"name": tool, "arguments": arguments});
        let params = match self.era {
            Era::Legacy => params,
            Era::Modern => {
                let mut params = modern(params);
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
                params
            }
        };
        let request = self.launched.request(json!(self.id), "tools/call", params);
        request.await["result"].take()
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"))
}

fn tickets(list: &Value) -> Vec<&Value> {
    let tickets = list["structuredContent"]["tickets"].as_array();
    tickets.unwrap_or_else(|| panic!("{list}")).iter().collect()
}

/// Makes a call and forgets the ticket; the ticket, for the test alone.
async fn make_and_forget(model: &mut impl Model) -> Value {
    let given = model.use_tool("held", report()).await;
    assert!(text(&given).contains(ASKED_FOR), "{given}");
    given["structuredContent"]["ticket"].clone()
}

/// From the tools alone: lists, recognises what was asked for, and fetches the result.
async fn find_again(model: &mut impl Model, upstream: &Upstream, ticket: &Value) {
    // The model makes an id up, and hears how to go on.
    let invented = json!({"ticket": "3ad6b4fd-737e-47b0-aa3e-9980ad6444a1"});
    let refused = model.use_tool("task_result", invented).await;
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("Call task_status without a ticket"));
    let list = model.use_tool("task_status", json!({})).await;
    assert!(list.get("isError").is_none(), "{list}");
    assert!(text(&list).contains(ASKED_FOR), "{list}");
    let [found] = tickets(&list)[..] else {
        panic!("{list}");
    };
    assert_eq!(found["ticket"], *ticket);
    assert_eq!(found["tool"], "held");
    assert_eq!(found["arguments"], r#"{"nonce":"n","report":"of Ada"}"#);
    assert_eq!(found["state"], "working");
    upstream.release("n");
    let asked = json!({"ticket": found["ticket"]});
    let result = model.use_tool("task_result", asked).await;
    assert_eq!(text(&result), "released");
    let list = model.use_tool("task_status", json!({"ticket": ""})).await;
    assert_eq!(tickets(&list)[0]["state"], "completed", "{list}");
}

async fn finds_nothing(model: &mut impl Model) {
    let list = model.use_tool("task_status", json!({})).await;
    assert!(tickets(&list).is_empty(), "{list}");
    assert!(!list.to_string().contains("Ada"), "{list}");
}

async fn a_caller_finds_its_call_again(era: Era) {
    let rig = Rig::start(era, config()).await;
    let by = |name: &str| rig.client().without_tasks().named(format!("Bearer {name}"));
    let ticket = make_and_forget(&mut by("ada")).await;
    finds_nothing(&mut by("eve")).await;
    finds_nothing(&mut Session::open(by("eve"), NEWEST).await).await;
    // A session has what its caller has.
    let mut session = Session::open(by("ada"), NEWEST).await;
    let list = session.use_tool("task_status", json!({})).await;
    assert_eq!(tickets(&list)[0]["ticket"], ticket);
    find_again(&mut by("ada"), &rig.upstream, &ticket).await;
}

async fn a_session_finds_its_call_again(era: Era) {
    let rig = Rig::start(era, config()).await;
    let mut session = Session::open(rig.client(), NEWEST).await;
    let ticket = make_and_forget(&mut session).await;
    finds_nothing(&mut Session::open(rig.client(), NEWEST).await).await;
    // With credentials it is another client, although it names the session.
    let borrowed = session.at(rig.client().named("Bearer eve"));
    let stolen = borrowed.calling(7, "task_status", json!({})).send().await;
    assert!(!stolen.text.contains("Ada"), "{}", stolen.text);
    // A request of 2026-07-28 has no session, whatever it names.
    let named = rig.client().without_tasks();
    let named = named.calling("task_status", json!({}));
    let refused = named.header("mcp-session-id", &session.name).send().await;
    assert_eq!(refused.into_result()["isError"], true);
    find_again(&mut session, &rig.upstream, &ticket).await;
}

/// A session of a program has a line of its own.
#[tokio::test]
async fn a_session_of_a_program_finds_its_call_again() {
    let proxy = config()
        .tool("hold", "fallback_after = \"100ms\"")
        .run("legacy")
        .await;
    let open = async || Session::open(Client::of(proxy.address()), NEWEST).await;
    let mut session = open().await;
    let given = session.use_tool("hold", json!({"nonce": "n"})).await;
    let list = session.use_tool("task_status", json!({})).await;
    assert_eq!(
        tickets(&list)[0]["ticket"],
        given["structuredContent"]["ticket"],
        "{list}"
    );
    finds_nothing(&mut open().await).await;
}

async fn a_client_on_a_pipe_finds_its_call_again(era: Era) {
    for client_era in [Era::Legacy, Era::Modern] {
        let upstream = Upstream::start(era).await;
        let state = Arc::new(TempDir::new());
        let launch = async || {
            let arguments = ["--upstream", &upstream.url()];
            let mut launched = Launched::remembering(&arguments, &config(), &state);
            if client_era == Era::Legacy {
                launched.initialize().await;
            }
            let (era, id) = (client_era, 0);
            OnPipe { launched, era, id }
        };
        let mut client = launch().await;
        let ticket = make_and_forget(&mut client).await;
        finds_nothing(&mut launch().await).await;
        find_again(&mut client, &upstream, &ticket).await;
    }
}

async fn a_client_that_nothing_tells_from_others_is_told_so(era: Era) {
    let rig = Rig::start(era, config()).await;
    let mut client = rig.client().without_tasks();
    make_and_forget(&mut client).await;
    let refused = client.use_tool("task_status", json!({})).await;
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("neither credentials nor a session"));
    let status = async |client: &Client| {
        let list = client.request("tools/list", json!({})).send().await;
        let list = list.into_result();
        let mut tools = list["tools"].as_array().unwrap().iter();
        let tool = tools.find(|tool| tool["name"] == "task_status").unwrap();
        tool["inputSchema"]["required"].clone()
    };
    assert_eq!(status(&client).await, json!(["ticket"]));
    assert_eq!(status(&client.named("Bearer ada")).await, json!([]));
}

async fn what_is_listed_is_short(era: Era) {
    let rig = Rig::start(era, config()).await;
    let mut client = rig.client().without_tasks().named("Bearer ada");
    let long = json!({"nonce": "n", "text": "🐢".repeat(5_000)});
    let calls = (0..21).map(|_| client.call("held", long.clone()));
    for given in futures_util::future::join_all(calls).await {
        let given = given.into_result();
        let arguments = given["structuredContent"]["arguments"].as_str().unwrap();
        assert_eq!(arguments.chars().count(), 120);
        assert!(arguments.ends_with("🐢…"), "{arguments}");
    }
    let list = client.use_tool("task_status", json!({})).await;
    assert_eq!(tickets(&list).len(), 20);
    assert!(text(&list).contains("There are more"));
    assert!(!rig.proxy.log().contains("🐢"));
}

/// A legacy server's requests are not stored: in its store the arguments are in the ticket alone.
async fn what_was_asked_for_is_sealed(era: Era) {
    for (line, is_readable) in [("", true), ("seal = \"payloads\"", false)] {
        let rig = Rig::start(era, config().embedded().store(line)).await;
        let mut session = Session::open(rig.client(), NEWEST).await;
        let ticket = make_and_forget(&mut session).await;
        let stored = files_of(rig.proxy.directory.path());
        let word = b"of Ada";
        let found = stored.windows(word.len()).any(|here| here == word);
        assert_eq!(found, is_readable, "{line:?}");
        find_again(&mut session, &rig.upstream, &ticket).await;
    }
}
