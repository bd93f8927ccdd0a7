//! Clients without Tasks whose calls take long: a ticket, and tools to follow it with.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::{Config, Era, PATIENCE, Rig, in_both_eras, within};

in_both_eras!(
    a_call_that_takes_long_is_answered_with_a_ticket,
    a_call_that_is_quick_is_what_it_was,
    a_ticket_waits_for_the_end,
    the_result_is_the_tools_own,
    an_error_is_the_tools_own,
    a_cancel_reaches_the_server,
    a_question_after_the_ticket_is_answered_by_it,
    a_question_before_the_ticket_is_asked_as_ever,
    the_list_ends_with_the_tools,
    only_the_last_page_has_the_tools,
    names_that_the_server_has_get_the_prefix,
    a_tool_with_an_output_schema_gives_a_ticket_that_fits_it,
    the_longest_wait_is_as_long_as_clients_are_patient,
    no_two_answers_about_a_ticket_are_alike,
    tickets_of_others_are_unknown,
    clients_with_tasks_see_nothing_of_it,
    nothing_of_it_is_there_unless_it_is_wanted,
    tools_that_never_are_tasks_stay_calls,
    a_key_leads_to_the_ticket_and_to_the_result,
);

const NAMES: [&str; 4] = ["task_status", "task_result", "task_cancel", "task_answer"];

/// Tickets after a moment for what waits, and waits of up to 15 s.
fn config() -> Config {
    let terms = "companion_tools = true\nfallback_after = \"20s\"";
    let auto = Config::auto("10s").terms(terms);
    auto.tool("{held,steps,typed}", "fallback_after = \"100ms\"")
        .tool("ask_then_hold", "fallback_after = \"2s\"")
}

async fn start(era: Era) -> (Rig, Client) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client().without_tasks();
    (rig, client)
}

/// The ticket that a call is answered with.
async fn ticket(client: &Client, tool: &str, arguments: Value) -> String {
    let result = client.call(tool, arguments).await.into_result();
    assert_eq!(result["resultType"], "complete", "{result}");
    let ticket = result["structuredContent"]["ticket"].as_str();
    ticket.unwrap_or_else(|| panic!("{result}")).to_owned()
}

async fn ask(client: &Client, tool: &str, ticket: &str) -> Value {
    client
        .call(tool, json!({"ticket": ticket}))
        .await
        .into_result()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"))
}

async fn listed(client: &Client, params: Value) -> Value {
    client
        .request("tools/list", params)
        .send()
        .await
        .into_result()
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn a_call_that_takes_long_is_answered_with_a_ticket(era: Era) {
    let (rig, client) = start(era).await;
    let result = client.call("held", json!({})).await.into_result();
    let ticket = result["structuredContent"]["ticket"].as_str().unwrap();
    let words = format!(
        "Still running. The call goes on by itself, for 0 s since its ticket: do not make it again. \
         Ticket {ticket} for held {{}}. Call task_result with this ticket and round 1: it waits for the result."
    );
    assert_eq!(text(&result), words);
    // Many clients show their model nothing else.
    assert_eq!(
        result["structuredContent"],
        json!({
            "ticket": ticket, "state": "working", "tool": "held", "arguments": "{}",
            "next": "task_result", "round": 1,
            "secondsSinceTicket": 0, "message": words,
        })
    );
    assert_eq!(rig.upstream.tally("held").running(), 1, "and it runs on");
}

async fn a_call_that_is_quick_is_what_it_was(era: Era) {
    let (_rig, client) = start(era).await;
    let answer = client.call("echo", json!({"text": "x"})).await;
    assert!(answer.text.contains(crate::support::upstream::FAITHFUL));
}

async fn a_ticket_waits_for_the_end(era: Era) {
    let (rig, client) = start(era).await;
    let ticket = ticket(&client, "held", json!({})).await;
    let soon = json!({"ticket": ticket, "wait_seconds": 0});
    let now = client.call("task_status", soon).await.into_result();
    assert_eq!(now["structuredContent"]["state"], "working");
    assert_eq!(now["structuredContent"]["next"], "task_result");
    let waiting = client.calling("task_status", json!({"ticket": ticket}));
    let mut waiting = tokio::spawn(waiting.send());
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "it has nothing to tell yet: {early:?}");
    rig.upstream.release("held");
    let ended = within(PATIENCE / 2, "it waits no longer", waiting).await;
    let ended = ended.unwrap().into_result();
    assert_eq!(ended["structuredContent"]["state"], "completed");
    assert_eq!(ended["structuredContent"]["next"], "task_result");
}

async fn the_result_is_the_tools_own(era: Era) {
    let (rig, client) = start(era).await;
    for (tool, arguments) in [
        ("held", json!({})),
        ("steps", json!({"n": 1, "then": "big"})),
    ] {
        let ticket = ticket(&client, tool, arguments.clone()).await;
        if tool == "steps" {
            let waits = json!({"ticket": ticket, "wait_seconds": 0});
            let stands = client.call("task_result", waits).await.into_result();
            assert_eq!(stands["structuredContent"]["state"], "working");
        }
        rig.upstream.release(tool);
        let result = ask(&client, "task_result", &ticket).await;
        // A client with Tasks waits longer here.
        let plain = rig.client().call(tool, arguments).await.into_result();
        assert_eq!(result, plain, "{tool}");
    }
}

async fn an_error_is_the_tools_own(era: Era) {
    let (rig, client) = start(era).await;
    let ticket = ticket(&client, "steps", json!({"then": "error"})).await;
    rig.upstream.release("steps");
    let status = ask(&client, "task_status", &ticket).await;
    assert_eq!(status["structuredContent"]["state"], "failed");
    let fetched = client.call("task_result", json!({"ticket": ticket})).await;
    let plain = rig.client().call("steps", json!({"then": "error"})).await;
    assert_eq!(fetched.json()["error"], plain.json()["error"]);
    assert_eq!(fetched.json()["error"]["code"], -32050);
}

async fn a_cancel_reaches_the_server(era: Era) {
    let (rig, client) = start(era).await;
    let ticket = ticket(&client, "held", json!({})).await;
    let cancelled = ask(&client, "task_cancel", &ticket).await;
    assert_eq!(cancelled["structuredContent"]["state"], "cancelled");
    let was = |tally: crate::support::upstream::Tally| tally.cancelled == 1;
    rig.upstream.until("held", "cancelled", was).await;
    let again = ask(&client, "task_cancel", &ticket).await;
    assert_eq!(again["structuredContent"]["state"], "cancelled");
    let result = ask(&client, "task_result", &ticket).await;
    assert_eq!(result["isError"], true);
}

async fn a_question_after_the_ticket_is_answered_by_it(era: Era) {
    let (rig, client) = start(era).await;
    let ticket = ticket(&client, "steps", json!({"then": "ask"})).await;
    rig.upstream.release("steps");
    let asks = ask(&client, "task_status", &ticket).await;
    let shown = &asks["structuredContent"];
    assert_eq!(shown["state"], "input_required", "{asks}");
    assert_eq!(shown["next"], "task_answer");
    let (key, question) = shown["questions"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    assert_eq!(question["params"]["message"], "Your name?");
    assert!(
        text(&asks).contains("Your name?"),
        "for who reads text only"
    );
    let answering = |key: &str, action: &str| {
        let content = json!({"name": "Ada"});
        json!({"ticket": ticket, "key": key, "action": action, "content": content})
    };
    for wrong in [answering("other", "accept"), answering(key, "maybe")] {
        let refused = client.call("task_answer", wrong).await.into_result();
        assert_eq!(refused["isError"], true);
    }
    let answered = client.call("task_answer", answering(key, "accept")).await;
    assert_ne!(
        answered.into_result()["structuredContent"]["state"],
        "input_required"
    );
    let result = ask(&client, "task_result", &ticket).await;
    assert_eq!(text(&result), "Ada");
}

async fn a_question_before_the_ticket_is_asked_as_ever(era: Era) {
    let (_rig, client) = start(era).await;
    let asked = client.call("ask", json!({})).await.into_result();
    assert_eq!(asked["resultType"], "input_required");
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let retry = client.calling("ask", json!({})).edit(|message| {
        message["params"]["requestState"] = asked["requestState"].clone();
        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        message["params"]["inputResponses"] = json!({key: answer});
    });
    assert_eq!(retry.send().await.into_text(), "Ada");
}

#[tokio::test]
async fn what_takes_long_after_a_question_is_a_ticket_too() {
    let (rig, client) = start(Era::Legacy).await;
    let asked = client.call("ask_then_hold", json!({})).await.into_result();
    assert_eq!(asked["resultType"], "input_required");
    let retry = client.calling("ask_then_hold", json!({})).edit(|message| {
        message["params"]["requestState"] = asked["requestState"].clone();
        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        message["params"]["inputResponses"] = json!({"q1": answer});
    });
    let result = retry.send().await.into_result();
    let ticket = result["structuredContent"]["ticket"].as_str().unwrap();
    rig.upstream.release("ask_then_hold");
    let result = ask(&client, "task_result", ticket).await;
    assert_eq!(text(&result), "Ada");
}

async fn the_list_ends_with_the_tools(era: Era) {
    let (rig, client) = start(era).await;
    let list = listed(&client, json!({})).await;
    let names = names(&list);
    let (theirs, ours) = names.split_at(names.len() - 4);
    assert_eq!(ours, NAMES);
    assert!(theirs.contains(&"echo"));
    for tool in &list["tools"].as_array().unwrap()[names.len() - 4..] {
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert!(tool["description"].as_str().unwrap().len() < 100);
        let reads = matches!(tool["name"].as_str(), Some("task_status" | "task_result"));
        assert_eq!(tool["annotations"]["readOnlyHint"], reads);
    }
    assert_eq!(
        rig.upstream.requests("tools/list").len(),
        1,
        "one page is read once"
    );
}

async fn only_the_last_page_has_the_tools(era: Era) {
    let (rig, client) = start(era).await;
    rig.upstream.list_in_pages();
    rig.upstream.offer("task_status");
    let first = listed(&client, json!({})).await;
    assert_eq!(names(&first), ["task_status", "echo"]);
    let rest = listed(&client, json!({"cursor": first["nextCursor"]})).await;
    let prefixed = NAMES.map(|name| format!("raincheck_{name}"));
    // The clash is on the other page.
    assert!(names(&rest).ends_with(&prefixed.each_ref().map(String::as_str)));
}

async fn names_that_the_server_has_get_the_prefix(era: Era) {
    let config = config().terms("companion_prefix = \"our-\"");
    let rig = Rig::start(era, config).await;
    rig.upstream.offer("task_status");
    let client = rig.client().without_tasks();
    let list = listed(&client, json!({})).await;
    let prefixed = NAMES.map(|name| format!("our-{name}"));
    assert!(names(&list).ends_with(&prefixed.each_ref().map(String::as_str)));
    let result = client.call("held", json!({})).await.into_result();
    let given = &result["structuredContent"];
    assert_eq!(given["next"], "our-task_result");
    let status = json!({"ticket": given["ticket"], "wait_seconds": 0});
    let own = client.call("task_status", status.clone()).await.into_text();
    assert_eq!(own, "the server's own");
    let ours = client.call("our-task_status", status).await.into_result();
    assert_eq!(ours["structuredContent"]["state"], "working");
}

/// Clients check structured content against the schema that the tool was listed with.
async fn a_tool_with_an_output_schema_gives_a_ticket_that_fits_it(era: Era) {
    let (rig, client) = start(era).await;
    let schema = |list: &Value, name: &str| {
        let tools = list["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["outputSchema"].clone()
    };
    let own = schema(&listed(&rig.client(), json!({})).await, "typed");
    let edited = schema(&listed(&client, json!({})).await, "typed");
    let ways = edited["anyOf"].as_array().unwrap();
    assert_eq!(ways[0]["required"], own["required"]);
    let result = client.call("typed", json!({})).await.into_result();
    assert!(result.get("isError").is_none(), "{result}");
    let given = result["structuredContent"].as_object().unwrap();
    for name in ways[1]["required"].as_array().unwrap() {
        assert!(given.contains_key(name.as_str().unwrap()), "{name}");
    }
    assert!(edited.get("required").is_none(), "{edited}");
    assert_eq!(edited["properties"]["n"], own["properties"]["n"]);
    rig.upstream.release("typed");
    let result = ask(&client, "task_result", given["ticket"].as_str().unwrap()).await;
    assert_eq!(result["structuredContent"], json!({"n": 1}));
}

async fn the_longest_wait_is_as_long_as_clients_are_patient(era: Era) {
    let config = Config::auto("10s").terms("companion_tools = true\nfallback_after = \"2m\"");
    let rig = Rig::start(era, config).await;
    let list = listed(&rig.client().without_tasks(), json!({})).await;
    let tools = list["tools"].as_array().unwrap();
    for tool in &tools[tools.len() - 4..tools.len() - 2] {
        let wait = &tool["inputSchema"]["properties"]["wait_seconds"];
        assert_eq!(
            (&wait["maximum"], &wait["default"]),
            (&json!(115), &json!(115))
        );
    }
}

/// Some clients stop a model that makes the same call several times, or hears the same again.
async fn no_two_answers_about_a_ticket_are_alike(era: Era) {
    let (_rig, client) = start(era).await;
    let ticket = ticket(&client, "held", json!({})).await;
    let mut round = json!(1);
    for next in 2..4 {
        let asked = json!({"ticket": ticket, "round": round, "wait_seconds": 0});
        let stands = client.call("task_result", asked).await.into_result();
        round = stands["structuredContent"]["round"].clone();
        assert_eq!(round, next);
        let words = format!("Call task_result with this ticket and round {next}:");
        assert!(text(&stands).contains(&words), "{stands}");
    }
}

async fn tickets_of_others_are_unknown(era: Era) {
    let rig = Rig::start(era, config()).await;
    let (ada, eve) = (
        rig.client().without_tasks().named("Bearer ada"),
        rig.client().without_tasks().named("Bearer eve"),
    );
    let real = ticket(&ada, "held", json!({})).await;
    let unknown = uuid::Uuid::new_v4().to_string();
    for tool in NAMES {
        let mut refusals = Vec::new();
        for ticket in [&*real, &*unknown, "nonsense"] {
            let arguments = json!({"ticket": ticket, "key": "q1", "action": "accept"});
            let refused = eve.call(tool, arguments).await.into_result();
            assert_eq!(refused["isError"], true, "{tool}");
            refusals.push(text(&refused).to_owned());
        }
        refusals.dedup();
        assert_eq!(refusals.len(), 1, "{tool}: {refusals:?}");
    }
    let without = eve.call("task_result", json!({})).await.into_result();
    assert_eq!(without["isError"], true);
    let hers = eve.call("task_status", json!({})).await.into_result();
    assert_eq!(hers["structuredContent"]["tickets"], json!([]));
    let soon = json!({"ticket": real, "wait_seconds": 0});
    let hers = ada.call("task_status", soon).await.into_result();
    assert_eq!(hers["structuredContent"]["state"], "working");
}

async fn clients_with_tasks_see_nothing_of_it(era: Era) {
    let rig = Rig::start(era, config().tool("slow", "grace_window = \"50ms\"")).await;
    let client = rig.client();
    let list = listed(&client, json!({})).await;
    assert!(NAMES.iter().all(|name| !names(&list).contains(name)));
    let unknown = client.call("task_status", json!({"ticket": "x"})).await;
    // The server's own tool of that name answers.
    assert_eq!(unknown.into_text(), "the server's own");
}

async fn nothing_of_it_is_there_unless_it_is_wanted(era: Era) {
    let config = Config::auto("10s").terms("fallback_after = \"50ms\"");
    let rig = Rig::start(era, config).await;
    let client = rig.client().without_tasks();
    let list = listed(&client, json!({})).await;
    assert!(NAMES.iter().all(|name| !names(&list).contains(name)));
    let slow = client.call("slow", json!({"ms": 200})).await;
    assert_eq!(slow.into_text(), "slept");
}

async fn tools_that_never_are_tasks_stay_calls(era: Era) {
    let terms = "companion_tools = true\nfallback_after = \"50ms\"";
    let rig = Rig::start(era, Config::never().terms(terms)).await;
    let client = rig.client().without_tasks();
    let slow: Answer = client.call("slow", json!({"ms": 200})).await;
    assert_eq!(slow.into_text(), "slept");
}

async fn a_key_leads_to_the_ticket_and_to_the_result(era: Era) {
    let (rig, client) = start(era).await;
    let keyed = async |client: &Client| {
        let call = client.calling("held", json!({}));
        call.header("idempotency-key", "k").send().await
    };
    let calls = join_all((0..4).map(|_| keyed(&client))).await;
    let mut tickets = Vec::new();
    for call in calls {
        let result = call.into_result();
        assert_eq!(result["structuredContent"]["next"], "task_result");
        tickets.push(result["structuredContent"]["ticket"].clone());
    }
    assert!(tickets.iter().all(|ticket| ticket == &tickets[0]));
    // The task of a client with Tasks is the same one.
    let task = keyed(&rig.client()).await.into_task();
    assert_eq!(json!(task.id), tickets[0]);
    rig.upstream.release("held");
    let result = ask(&client, "task_result", &task.id).await;
    assert_eq!(text(&result), "released");
    assert_eq!(keyed(&client).await.into_result(), result);
    assert_eq!(rig.upstream.tally("held").started, 1);
}
