//! A receiver of webhooks that follows a script, and verifies what it gets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::{Config, within};
use crate::http_request::WireRequest;
use crate::scripted::{Act, Scripted};

/// `whsec_` and the base64 of [`KEY`].
pub(crate) const SECRET: &str = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4";
const KEY: &[u8] = b"abcdefghijklmnopqrstuvwx";

/// What the receiver does with the next message. Without a script it answers 200.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Status(u16),
    Redirect(String),
    /// It never answers.
    Hang,
    /// It takes the message once it is told to.
    After(Arc<Notify>),
    /// It answers 200 with this body.
    Body(String),
}

/// A message as it came, whatever it was answered with.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) json: Value,
    pub(crate) text: String,
    pub(crate) was_taken: bool,
    /// The subscription that it names.
    pub(crate) subscription: Option<String>,
    /// How many signatures it has.
    pub(crate) signatures: usize,
}

impl Webhook {
    /// Whether it only asks whether the receiver wants to hear.
    pub(crate) fn is_challenge(&self) -> bool {
        self.json["type"] == "verification"
    }

    pub(crate) fn state(&self) -> &str {
        self.json["data"]["state"].as_str().unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    _server: Scripted,
    got: Arc<watch::Sender<Vec<Webhook>>>,
}

impl Receiver {
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let got = Arc::new(watch::Sender::new(Vec::new()));
        let script: VecDeque<Reply> = script.into_iter().collect();
        let (script, into) = (Mutex::new(script), Arc::clone(&got));
        let server = Scripted::start(move |request| {
            let reply = script.lock().unwrap().pop_front();
            take(&into, reply.unwrap_or(Reply::Status(200)), request)
        });
        let server = server.await;
        Self {
            url: format!("http://{}", server.address()),
            _server: server,
            got,
        }
    }

    /// The configuration that tells this receiver of everything, with further lines.
    pub(crate) fn of(&self, config: Config, lines: &str) -> Config {
        let url = format!("{}/hook", self.url);
        let lines = format!("url = {url:?}\nsecret = {SECRET:?}\nallow_private = true\n{lines}");
        config.section("[notify]", &lines)
    }

    pub(crate) fn got(&self) -> Vec<Webhook> {
        self.got.borrow().clone()
    }

    /// The messages that are no challenges.
    pub(crate) fn told(&self) -> Vec<Webhook> {
        let mut all = self.got();
        all.retain(|it| !it.is_challenge());
        all
    }

    /// Waits for so many messages that were taken, challenges not counted, and gives all messages.
    pub(crate) async fn until_taken(&self, patience: Duration, count: usize) -> Vec<Webhook> {
        let taken = |all: &[Webhook]| {
            let all = all.iter().filter(|it| it.was_taken && !it.is_challenge());
            all.count() >= count
        };
        self.until(
            patience,
            &format!("{count} webhooks that were taken"),
            taken,
        )
        .await
    }

    /// Waits for so many messages, whatever they were answered with.
    pub(crate) async fn until_asked(&self, patience: Duration, count: usize) -> Vec<Webhook> {
        self.until(patience, &format!("{count} webhooks"), |all| {
            all.len() >= count
        })
        .await
    }

    async fn until(
        &self,
        patience: Duration,
        what: &str,
        is_so: impl Fn(&[Webhook]) -> bool,
    ) -> Vec<Webhook> {
        let mut got = self.got.subscribe();
        let event = got.wait_for(|all| is_so(all));
        within(patience, what, event).await.unwrap().clone()
    }
}

fn take(into: &watch::Sender<Vec<Webhook>>, reply: Reply, request: &WireRequest) -> Vec<Act> {
    let text = String::from_utf8(request.body.clone()).unwrap();
    let header = |name: &str| request.header(name).unwrap().to_owned();
    let (id, at) = (header("webhook-id"), header("webhook-timestamp"));
    let signature = header("webhook-signature");
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, KEY);
    let signed = aws_lc_rs::hmac::sign(&key, format!("{id}.{at}.{text}").as_bytes());
    let wanted = format!("v1,{}", super::base64(signed.as_ref()));
    assert!(signature.split(' ').any(|it| it == wanted), "{signature}");
    assert_eq!(header("content-type"), "application/json");
    let was_taken = matches!(reply, Reply::Status(200..=299) | Reply::After(_));
    let json: Value = serde_json::from_str(&text).unwrap();
    let echo = serde_json::json!({"challenge": json["challenge"]}).to_string();
    into.send_modify(|got| {
        got.push(Webhook {
            id,
            path: request.path().to_owned(),
            json,
            text,
            was_taken,
            subscription: request.header("x-mcp-subscription-id").map(str::to_owned),
            signatures: signature.split(' ').count(),
        });
    });
    match reply {
        Reply::Status(status) => vec![Act::response(&format!("{status} Said"), echo)],
        Reply::After(told) => vec![
            Act::wait(async move { told.notified().await }),
            Act::response("200 OK", echo),
        ],
        Reply::Body(body) => vec![Act::response("200 OK", body)],
        Reply::Redirect(to) => vec![Act::response(&format!("307 Said\r\nlocation: {to}"), "")],
        Reply::Hang => vec![Act::hang()],
    }
}
