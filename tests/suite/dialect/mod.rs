//! The 2025-11-25 tasks on legacy sessions, in front of a server over HTTP and of a program.

use std::ops::Deref;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, Request};
use crate::support::session::{self, NEWEST, initialize};
use crate::support::{Config, Era, PATIENCE, Proxy, Rig, eventually};

mod apart;
mod both;

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// In front of what a session runs.
enum Front {
    Web(Rig),
    Program(Proxy),
}

impl Front {
    async fn web(config: Config) -> Self {
        Self::Web(Rig::start(Era::Legacy, config).await)
    }

    async fn program(config: Config) -> Self {
        Self::Program(config.run("legacy").await)
    }

    fn client(&self) -> Client {
        Client::of(match self {
            Self::Web(rig) => rig.proxy.address(),
            Self::Program(proxy) => proxy.address(),
        })
    }

    async fn session(&self) -> Session {
        Session::open(self.client()).await
    }

    /// A tool that runs until it is let go, and what it is called with.
    fn held(&self) -> (&'static str, Value) {
        match self {
            Self::Web(_) => ("held", json!({"nonce": "h"})),
            Self::Program(_) => ("hold", json!({"nonce": "h"})),
        }
    }
}

/// A session whose requests all have the id 7, and what was said when it was opened.
#[derive(Debug, Clone)]
struct Session {
    session: session::Session,
    opened: Value,
}

impl Deref for Session {
    type Target = session::Session;

    fn deref(&self) -> &session::Session {
        &self.session
    }
}

impl Session {
    async fn open(client: Client) -> Self {
        let mut hello = initialize(NEWEST, json!({"elicitation": {}}));
        hello["id"] = json!(1);
        let (session, answer) = session::Session::greeting(client, NEWEST, &hello).await;
        Self {
            session,
            opened: answer.json()["result"].take(),
        }
    }

    /// The same session at another replica, or used by another caller.
    fn at(&self, client: Client) -> Self {
        Self {
            session: self.session.at(client),
            opened: self.opened.clone(),
        }
    }

    fn listening(&self) -> Request {
        self.http(Method::GET)
    }

    fn asking(&self, method: &str, params: Value) -> Request {
        self.request(7, method, params)
    }

    async fn ask(&self, method: &str, params: Value) -> Answer {
        self.asking(method, params).send().await
    }

    async fn result_of(&self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.into_result()
    }

    /// The JSON-RPC code of a refusal, which never looks like the end of a session.
    async fn code(&self, method: &str, params: Value) -> i64 {
        let (status, code) = self.ask(method, params).await.refusal();
        assert_eq!(status, 200);
        code
    }

    async fn call_as(&self, tool: &str, arguments: Value, task: Value) -> Answer {
        let params = json!({"name": tool, "arguments": arguments, "task": task});
        self.ask("tools/call", params).await
    }

    /// A task, and what was said of it.
    async fn task(&self, tool: &str, arguments: Value) -> (String, Value) {
        let created = self.call_as(tool, arguments, json!({})).await.into_result();
        let task = &created["task"];
        assert_task(task, "working");
        (task["taskId"].as_str().unwrap().to_owned(), task.clone())
    }

    async fn get(&self, task: &str) -> Value {
        let state = self.result_of("tasks/get", json!({"taskId": task})).await;
        assert_eq!(state["taskId"], task);
        state
    }

    async fn until(&self, task: &str, status: &str) -> Value {
        let what = format!("the task is {status}");
        let state = eventually(PATIENCE, &what, async || {
            let state = self.get(task).await;
            let is_so = state["status"] == status;
            if is_so { Ok(state) } else { Err(state) }
        });
        let state = state.await;
        assert_task(&state, status);
        state
    }

    async fn result(&self, task: &str) -> Value {
        self.result_of("tasks/result", json!({"taskId": task}))
            .await
    }

    /// Answers a question of the server.
    async fn reply(&self, question: &Value, member: &str, answer: Value) {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], member: answer});
        let answer = self.post(&message).send().await;
        assert_eq!((answer.status, &*answer.body), (202, ""));
    }
}

/// The exact members of this revision's `Task`, of the types that strict clients want.
#[track_caller]
fn assert_task(task: &Value, status: &str) {
    let members = task.as_object().unwrap();
    for key in members.keys() {
        let known = [
            "taskId",
            "status",
            "statusMessage",
            "createdAt",
            "lastUpdatedAt",
            "ttl",
            "pollInterval",
        ];
        assert!(known.contains(&key.as_str()), "{key} in {task}");
    }
    assert_eq!(task["status"], status, "{task}");
    for text in ["taskId", "createdAt", "lastUpdatedAt"] {
        assert!(task[text].is_string(), "{task}");
    }
    for number in ["ttl", "pollInterval"] {
        assert!(task[number].as_u64().is_some_and(|n| n > 0), "{task}");
    }
}

#[track_caller]
fn assert_question(question: &Value, task: &str) {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["message"], "Your name?");
    assert_eq!(question["params"]["_meta"][RELATED]["taskId"], task);
    let id = question["id"].as_str().unwrap();
    assert!(id.starts_with(&format!("raincheck/{task}/")), "{id}");
}
