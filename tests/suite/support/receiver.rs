//! A receiver of webhooks that follows a script, and verifies what it gets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::{Config, within};

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
    got: Arc<watch::Sender<Vec<Webhook>>>,
    job: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::new(watch::Sender::new(Vec::new()));
        let script: VecDeque<Reply> = script.into_iter().collect();
        let script = Arc::new(Mutex::new(script));
        let into = Arc::clone(&got);
        let job = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (into, script) = (Arc::clone(&into), Arc::clone(&script));
                let service = service_fn(move |request| {
                    let reply = script.lock().unwrap().pop_front();
                    take(
                        Arc::clone(&into),
                        reply.unwrap_or(Reply::Status(200)),
                        request,
                    )
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    let _ = serving.await;
                });
            }
        });
        Self { url, got, job }
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

impl Drop for Receiver {
    fn drop(&mut self) {
        self.job.abort();
    }
}

async fn take(
    into: Arc<watch::Sender<Vec<Webhook>>>,
    reply: Reply,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let header = |name: &str| head.headers[name].to_str().unwrap().to_owned();
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
    let subscription = head.headers.get("x-mcp-subscription-id");
    into.send_modify(|got| {
        got.push(Webhook {
            id,
            path: head.uri.path().to_owned(),
            json,
            text,
            was_taken,
            subscription: subscription.map(|id| id.to_str().unwrap().to_owned()),
            signatures: signature.split(' ').count(),
        });
    });
    let mut response = Response::new(Full::default());
    match reply {
        Reply::Status(status) => {
            *response.status_mut() = status.try_into().unwrap();
            *response.body_mut() = Full::new(Bytes::from(echo));
        }
        Reply::After(told) => {
            told.notified().await;
            *response.body_mut() = Full::new(Bytes::from(echo));
        }
        Reply::Body(body) => *response.body_mut() = Full::new(Bytes::from(body)),
        Reply::Redirect(to) => {
            *response.status_mut() = 307.try_into().unwrap();
            let headers = response.headers_mut();
            headers.insert("location", to.parse().unwrap());
        }
        Reply::Hang => std::future::pending().await,
    }
    Ok(response)
}
