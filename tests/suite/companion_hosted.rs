//! Legacy clients in front of a server that is modern only, whose calls take long: tickets on the
//! sessions that raincheck gives them.

use serde_json::{Value, json};

use crate::hosted::{Session, answered, question, text};
use crate::support::session::accept;
use crate::support::{Config, Era, Rig};

const NAMES: [&str; 4] = ["task_status", "task_result", "task_cancel", "task_answer"];

/// Tickets after a moment for what waits.
fn config() -> Config {
    Config::auto("10s")
        .terms("companion_tools = true\nfallback_after = \"20s\"")
        .tool("{held,steps,hold}", "fallback_after = \"100ms\"")
        .tool("{ask_two,ask_twice}", "fallback_after = \"2s\"")
}

async fn start() -> (Rig, Session) {
    let rig = Rig::start(Era::Modern, config()).await;
    let session = Session::open(rig.client()).await;
    (rig, session)
}

async fn call(session: &Session, tool: &str, arguments: Value) -> Value {
    let mut answer = answered(&session.calling(7, tool, arguments).send().await);
    assert!(answer["result"].is_object(), "{answer}");
    assert!(answer["result"].get("resultType").is_none(), "{answer}");
    answer["result"].take()
}

async fn ticket(session: &Session, tool: &str, arguments: Value) -> String {
    let result = call(session, tool, arguments).await;
    let ticket = result["structuredContent"]["ticket"].as_str();
    ticket.unwrap_or_else(|| panic!("{result}")).to_owned()
}

async fn names(session: &Session) -> Vec<String> {
    let list = session.ask("tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// As [`text`], of a result.
fn said(result: Value) -> String {
    text(&json!({"result": result})).to_owned()
}

/// Answers the one question of the ticket that was given; what it was, and the call's result.
async fn answer_the_last(session: &Session, given: &Value, name: &str) -> (Value, Value) {
    let ticket = &given["result"]["structuredContent"]["ticket"];
    let status = call(session, "task_status", json!({"ticket": ticket})).await;
    let questions = status["structuredContent"]["questions"]
        .as_object()
        .unwrap();
    assert_eq!(questions.len(), 1, "{status}");
    let (key, question) = questions.iter().next().unwrap();
    let answer = json!({
        "ticket": ticket, "key": key, "action": "accept", "content": {"name": name},
    });
    call(session, "task_answer", answer).await;
    let result = call(session, "task_result", json!({"ticket": ticket})).await;
    (question.clone(), result)
}

#[tokio::test]
async fn a_call_becomes_a_ticket_which_leads_to_its_result() {
    let (rig, session) = start().await;
    assert_eq!(
        said(call(&session, "echo", json!({"text": "x"})).await),
        "x"
    );
    let ticket = ticket(&session, "held", json!({})).await;
    let soon = json!({"ticket": ticket, "wait_seconds": 0});
    let status = call(&session, "task_status", soon).await;
    assert_eq!(status["structuredContent"]["state"], "working");
    rig.upstream.release("held");
    let result = call(&session, "task_result", json!({"ticket": ticket})).await;
    assert_eq!(said(result), "released");
    assert_eq!(rig.upstream.tally("held").started, 1);
    // Another session of the same caller has them, too.
    let other = Session::open(rig.client()).await;
    let status = call(&other, "task_status", json!({"ticket": ticket})).await;
    assert_eq!(status["structuredContent"]["state"], "completed");
}

#[tokio::test]
async fn a_ticket_outlives_the_session_that_asked() {
    let (rig, session) = start().await;
    let ticket = ticket(&session, "held", json!({})).await;
    assert_eq!(session.http(hyper::Method::DELETE).send().await.status, 200);
    let other = Session::open(rig.client()).await;
    rig.upstream.release("held");
    let result = call(&other, "task_result", json!({"ticket": ticket})).await;
    assert_eq!(said(result), "released");
}

#[tokio::test]
async fn the_list_ends_with_the_tools() {
    let (rig, session) = start().await;
    let listed = names(&session).await;
    assert_eq!(listed[listed.len() - 4..], NAMES);
    assert!(listed.contains(&"echo".to_owned()));
    rig.upstream.offer("task_status");
    let other = Session::open(rig.client().named("Bearer other")).await;
    let listed = names(&other).await;
    assert_eq!(listed[listed.len() - 4], "raincheck_task_status");
}

#[tokio::test]
async fn a_cancel_by_ticket_reaches_the_server() {
    let (rig, session) = start().await;
    let ticket = ticket(&session, "held", json!({})).await;
    let cancelled = call(&session, "task_cancel", json!({"ticket": ticket})).await;
    assert_eq!(cancelled["structuredContent"]["state"], "cancelled");
    let ended = |tally: crate::support::upstream::Tally| tally.cancelled == 1;
    rig.upstream.until("held", "cancelled", ended).await;
}

#[tokio::test]
async fn a_question_before_the_ticket_is_put_to_the_client() {
    let (_rig, session) = start().await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let asked = question(&mut stream).await;
    assert_eq!(session.reply(&asked, accept("Ada")).await, 202);
    assert_eq!(text(&stream.next().await), "Ada");
}

#[tokio::test]
async fn an_answer_before_the_ticket_counts_after_it() {
    let (_rig, session) = start().await;
    let mut stream = session.calling(2, "ask_twice", json!({})).stream().await;
    let asked = question(&mut stream).await;
    assert_eq!(session.reply(&asked, accept("Ann")).await, 202);
    question(&mut stream).await;
    stream.next_of("notifications/cancelled").await;
    let given = stream.next().await;
    let (_, result) = answer_the_last(&session, &given, "Bob").await;
    assert_eq!(said(result), "Ann and Bob");
}

#[tokio::test]
async fn questions_that_nobody_answers_are_in_the_ticket() {
    let (rig, session) = start().await;
    let mut stream = session.calling(1, "ask_two", json!({})).stream().await;
    let (one, two) = (question(&mut stream).await, question(&mut stream).await);
    let mut withdrawn = Vec::new();
    let given = loop {
        let message = stream.next().await;
        if message["method"] == "notifications/cancelled" {
            withdrawn.push(message["params"]["requestId"].clone());
        } else {
            break message;
        }
    };
    for asked in [one, two] {
        assert!(withdrawn.contains(&asked["id"]), "{withdrawn:?} {given}");
        // Too late, and no harm.
        assert_eq!(session.reply(&asked, accept("Eve")).await, 202);
    }
    let given = &given["result"]["structuredContent"];
    assert_eq!(
        (&given["state"], &given["next"]),
        (&json!("input_required"), &json!("task_answer"))
    );
    let ticket = &given["ticket"];
    let status = call(&session, "task_status", json!({"ticket": ticket})).await;
    let questions = status["structuredContent"]["questions"]
        .as_object()
        .unwrap();
    assert_eq!(questions.len(), 2, "{status}");
    for (key, question) in questions {
        let first = question["params"]["message"] == "Your first?";
        let name = if first { "Ann" } else { "Bob" };
        let answer = json!({
            "ticket": ticket, "key": key, "action": "accept", "content": {"name": name},
        });
        call(&session, "task_answer", answer).await;
    }
    let result = call(&session, "task_result", json!({"ticket": ticket})).await;
    assert_eq!(said(result), "Ann and Bob");
    // The first leg once, and the one with the answers: nothing was run again.
    assert_eq!(rig.upstream.requests("tools/call").len(), 2);
}

#[tokio::test]
async fn an_answer_beside_an_open_question_is_not_asked_for_again_in_the_ticket() {
    let (rig, session) = start().await;
    let mut stream = session.calling(1, "ask_two", json!({})).stream().await;
    let mut asked = [question(&mut stream).await, question(&mut stream).await];
    asked.sort_by_key(|asked| asked["params"]["message"].to_string());
    let [first, second] = asked;
    assert_eq!(session.reply(&first, accept("Ann")).await, 202);
    let withdrawn = stream.next_of("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], second["id"]);
    let given = stream.next().await;
    let (question, result) = answer_the_last(&session, &given, "Bob").await;
    assert_eq!(question["params"]["message"], "Your second?");
    assert_eq!(said(result), "Ann and Bob");
    assert_eq!(rig.upstream.requests("tools/call").len(), 2);
}

#[tokio::test]
async fn who_declares_a_task_has_one_and_no_ticket() {
    let (rig, session) = start().await;
    let params = json!({"name": "held", "arguments": {}, "task": {}});
    let created = session.ask("tools/call", params).await;
    assert!(created["result"]["task"]["taskId"].is_string(), "{created}");
    rig.upstream.release("held");
}

#[tokio::test]
async fn nothing_of_it_is_there_unless_it_is_wanted() {
    let rig = Rig::start(Era::Modern, Config::auto("10s")).await;
    let session = Session::open(rig.client()).await;
    assert!(!names(&session).await.contains(&"task_status".to_owned()));
}
