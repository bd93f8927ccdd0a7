//! Two subjects of one issuer: neither gets anything of the other, on any way that leads to a task or to an answer.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::client::{Answer, Client, Task};
use crate::support::issuer::Issuer;
use crate::support::session::{NEWEST, Session, accept};
use crate::support::stream::last_event;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_task_of_2025_is_unknown_to_another_subject,
    a_ticket_is_unknown_to_another_subject,
    no_answer_crosses_between_equal_ids,
);

struct Scene {
    issuer: Issuer,
    rig: Rig,
}

impl Scene {
    async fn start(era: Era, config: Config) -> Self {
        let issuer = Issuer::start().await;
        let rig = Rig::start(era, issuer.wanted_by(config, "")).await;
        rig.proxy
            .until_said("the keys of an issuer were fetched", 1)
            .await;
        Self { issuer, rig }
    }

    /// Each time with another token.
    fn client(&self, subject: &str) -> Client {
        self.rig.client().named(self.issuer.token(subject))
    }
}

fn unknown() -> Task {
    Task::by_id(uuid::Uuid::new_v4().to_string())
}

fn compared(answer: &Answer) -> (u16, &str) {
    (answer.status, &answer.body)
}

async fn a_task_of_2025_is_unknown_to_another_subject(era: Era) {
    let scene = Scene::start(era, Config::always()).await;
    let alice = scene.client("alice");
    let task = alice.call("ask", json!({})).await.into_task();
    let asked = alice.until(&task, "input_required").await;
    let hers = Session::open(alice.clone(), NEWEST).await;
    let his = Session::open(scene.client("bob"), NEWEST).await;
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let ask = async |task: &Task| {
            let params = json!({"taskId": task.id});
            his.request(1, method, params).send().await
        };
        let (foreign, unknown) = (ask(&task).await, ask(&unknown()).await);
        assert_eq!(compared(&foreign), compared(&unknown), "{method}");
        assert_eq!(foreign.json()["error"]["code"], -32602, "{method}");
        // Her session is no way to her tasks, either.
        let on_hers = his
            .named(&hers.name)
            .request(1, method, json!({"taskId": task.id}));
        let on_hers = on_hers.send().await;
        assert!(on_hers.json()["error"].is_object(), "{}", on_hers.body);
    }
    let listed = async |session: &Session| -> usize {
        let listed = session.request(2, "tasks/list", json!({})).send().await;
        let tasks = &listed.json()["result"]["tasks"];
        tasks.as_array().map_or(usize::MAX, Vec::len)
    };
    assert_eq!((listed(&his).await, listed(&hers).await), (0, 1));
    let (key, _) = asked["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": format!("raincheck/{}/{key}", task.id),
        "result": accept("Mallory")});
    assert_eq!(his.post(&answer).send().await.status, 202);
    let after = scene.client("alice").get(&task).await;
    assert_eq!(after["inputRequests"], asked["inputRequests"]);
    assert_eq!(after["lastUpdatedAt"], asked["lastUpdatedAt"]);
    hers.post(&json!({"jsonrpc": "2.0", "id": answer["id"], "result": accept("Ada")}))
        .send()
        .await;
    alice.until(&task, "completed").await;
}

async fn a_ticket_is_unknown_to_another_subject(era: Era) {
    let config = Config::auto("10s").terms("companion_tools = true");
    let config = config.tool("held", "fallback_after = \"100ms\"");
    let scene = Scene::start(era, config).await;
    let alice = scene.client("alice").without_tasks();
    let bob = scene.client("bob").without_tasks();
    let result = alice
        .call("held", json!({"nonce": "n"}))
        .await
        .into_result();
    let ticket = result["structuredContent"]["ticket"].as_str().unwrap();
    for tool in ["task_status", "task_result", "task_cancel", "task_answer"] {
        let ask = async |ticket: &str| {
            let call = bob.calling(tool, json!({"ticket": ticket, "answers": {}}));
            call.edit(|message| message["id"] = json!(1)).send().await
        };
        let (foreign, unknown) = (ask(ticket).await, ask(&unknown().id).await);
        assert_eq!(compared(&foreign), compared(&unknown), "{tool}");
        assert!(foreign.body.contains("no such ticket"), "{}", foreign.body);
    }
    scene.rig.upstream.release("n");
    let renewed = scene.client("alice").without_tasks();
    let result = renewed.call("task_result", json!({"ticket": ticket})).await;
    assert_eq!(result.into_text(), "released");
}

/// What was said on the stream of a call is for its caller, whatever its token by now.
#[tokio::test]
async fn a_stream_is_replayed_to_its_subject_only() {
    let scene = Scene::start(Era::Legacy, Config::always()).await;
    let hers = Session::open(scene.client("alice"), NEWEST).await;
    let mut stream = hers.calling(7, "steps", json!({"n": 2})).stream().await;
    let first = stream.event().await.unwrap().id.unwrap();
    assert!(first.starts_with("raincheck/"), "{first}");
    let step = stream.event().await.unwrap();
    drop(stream);

    let his = Session::open(scene.client("bob"), NEWEST).await;
    let back = |session: &Session, event: &str| {
        let request = session.http(hyper::Method::GET);
        request.header("last-event-id", event)
    };
    let made_up = format!("raincheck/{}/0", unknown().id);
    let nothing = back(&his, &made_up).send().await;
    for session in [&his, &his.named(&hers.name)] {
        let foreign = back(session, &first).send().await;
        assert_eq!(compared(&foreign), compared(&nothing));
        assert_eq!(foreign.status, 405);
    }
    let renewed = hers.at(scene.client("alice"));
    let mut stream = back(&renewed, &first).stream().await;
    let mut replayed = stream.event().await.unwrap();
    while replayed.message.is_null() {
        replayed = stream.event().await.unwrap();
    }
    assert_eq!(replayed.message, step.message);
    scene.rig.upstream.release("steps");
    while let Some(event) = stream.event().await {
        replayed = event;
    }
    assert_eq!(replayed.message["result"]["content"][0]["text"], "stepped");
}

/// Calls of each caller. A debug build is slow.
const CALLS: usize = if cfg!(debug_assertions) {
    1_000
} else {
    10_000
};

/// Connections of each caller, each with calls one after the other.
const CONNECTIONS: usize = 8;

async fn no_answer_crosses_between_equal_ids(era: Era) {
    let scene = Scene::start(era, Config::auto("10s")).await;
    let mut calling = JoinSet::new();
    for subject in ["alice", "bob"] {
        for connection in 0..CONNECTIONS {
            let client = scene.client(subject);
            calling.spawn(async move {
                let mut sender = connect(&client).await;
                for number in (connection..CALLS).step_by(CONNECTIONS) {
                    call(&mut sender, &client, subject, number).await;
                }
            });
        }
    }
    while let Some(ended) = calling.join_next().await {
        ended.unwrap();
    }
}

async fn connect(client: &Client) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(client.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Both callers use the same ids; the answer has the id and the text of this call.
async fn call(
    sender: &mut SendRequest<Full<Bytes>>,
    client: &Client,
    subject: &str,
    number: usize,
) {
    let text = format!("{subject} {number}");
    let request = client.calling("echo", json!({"text": text}));
    let request = request.edit(|message| message["id"] = json!(number));
    sender.ready().await.unwrap();
    let response = sender.send_request(request.into_http()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let answer = if body.starts_with('{') {
        body
    } else {
        last_event(&body)
    };
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["id"], number, "{answer}");
    assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
}
