//! Change notifications of the wrapped server, of either era, as one kind of stream.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use hyper::header::HeaderValue;
use serde_json::value::RawValue;

use super::heard::{self, Heard, Message, Messages};
use super::http::RequestBody;
use super::modern::note;
use super::origin::{METHOD, Origin, PROTOCOL_VERSION};
use super::sessions::{Key, Lease, Sessions};
use super::translate;
use crate::mcp::json::{Object, Writer, quote, string};
use crate::mcp::version::{Era, MODERN};

/// What the wrapped server says to a listener.
#[derive(Debug)]
pub enum ListenEvent {
    /// First: the part of the filter, as JSON, that the server will serve.
    Acknowledged(String),
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// Last: the server serves no more; it may be asked again.
    Ended,
}

/// Cancel safe to poll; dropping it ends the subscription.
pub type Listening = BoxStream<'static, ListenEvent>;

/// Who listens, and to what.
pub(super) struct Wish {
    pub(super) caller: [u8; 16],
    pub(super) credentials: Option<HeaderValue>,
    pub(super) capabilities: Arc<str>,
    pub(super) filter: Arc<str>,
}

pub(super) fn listen(
    origin: Arc<Origin>,
    sessions: Arc<Sessions>,
    era: Option<Era>,
    wish: Wish,
) -> Listening {
    let ear = Ear {
        origin,
        sessions,
        era,
        wish,
        source: None,
        said: VecDeque::new(),
        over: false,
        honoured: String::new(),
    };
    stream::unfold(ear, |mut ear| async {
        let event = ear.next().await?;
        Some((event, ear))
    })
    .boxed()
}

struct Ear {
    origin: Arc<Origin>,
    sessions: Arc<Sessions>,
    era: Option<Era>,
    wish: Wish,
    source: Option<Source>,
    said: VecDeque<ListenEvent>,
    over: bool,
    /// What a legacy server was found to serve of the wish.
    honoured: String,
}

struct Source {
    messages: Box<Messages>,
    /// A legacy session of the listener's own, for as long as it listens.
    lease: Option<Lease>,
}

impl Ear {
    async fn next(&mut self) -> Option<ListenEvent> {
        if let Some(event) = self.said.pop_front() {
            return Some(event);
        }
        if self.over {
            return None;
        }
        if self.source.is_none() && self.open().await.is_none() {
            return Some(self.end());
        }
        loop {
            if let Some(event) = self.said.pop_front() {
                return Some(event);
            }
            let Some(source) = &mut self.source else {
                return Some(self.end());
            };
            let Ok(Some(message)) = source.messages.next().await else {
                return Some(self.end());
            };
            match message {
                Message::Notification { method, params } => {
                    note(&self.origin, &method);
                    if let Some(event) = self.heard(&method, params) {
                        return Some(event);
                    }
                }
                Message::Result { .. } | Message::Error { .. } => return Some(self.end()),
                Message::Primed => {}
                Message::Request { id, method, .. } => self.on_request(&id, &method).await,
            }
        }
    }

    /// A legacy server may ask whether anybody still listens.
    async fn on_request(&self, id: &str, method: &str) {
        let lease = self
            .source
            .as_ref()
            .and_then(|source| source.lease.as_ref());
        if let Some(lease) = lease
            && method == "ping"
        {
            let mut out = Writer::object();
            out.str("jsonrpc", "2.0").raw("id", id).raw("result", "{}");
            // A server that cannot be told will notice by itself.
            let _ = lease.session.tell(out.end()).await;
        }
    }

    fn end(&mut self) -> ListenEvent {
        self.over = true;
        self.source = None;
        ListenEvent::Ended
    }

    fn heard(&self, method: &str, params: Option<Box<RawValue>>) -> Option<ListenEvent> {
        match method {
            "notifications/subscriptions/acknowledged" => {
                let params = params?;
                let honoured = Object::parse(params.get()).ok()?.get("notifications")?;
                Some(ListenEvent::Acknowledged(honoured.get().to_owned()))
            }
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated" => {
                let wanted = self.era == Some(Era::Modern) || self.is_wanted(method);
                wanted.then(|| ListenEvent::Notification {
                    method: method.to_owned(),
                    params,
                })
            }
            // Nothing else belongs on such a stream.
            _ => None,
        }
    }

    /// A legacy session says everything; the client asked for some of it, and got some of that.
    fn is_wanted(&self, method: &str) -> bool {
        let filter = Object::parse(&self.honoured).unwrap_or_default();
        let is_true = |key| {
            filter
                .get(key)
                .is_some_and(|raw: &RawValue| raw.get() == "true")
        };
        match method {
            "notifications/tools/list_changed" => is_true("toolsListChanged"),
            "notifications/prompts/list_changed" => is_true("promptsListChanged"),
            "notifications/resources/list_changed" => is_true("resourcesListChanged"),
            _ => filter.contains("resourceSubscriptions"),
        }
    }

    async fn open(&mut self) -> Option<()> {
        match self.era? {
            Era::Modern => self.open_modern().await,
            Era::Legacy => self.open_legacy().await,
        }
    }

    async fn open_modern(&mut self) -> Option<()> {
        let capabilities = translate::without_tasks(&self.wish.capabilities).ok()?;
        let params = translate::own_params(&capabilities, &[("notifications", &self.wish.filter)]);
        let body = translate::request(self.origin.next_id(), "subscriptions/listen", &params);
        let head = self
            .origin
            .post(self.wish.credentials.as_ref())
            .header(PROTOCOL_VERSION, MODERN)
            .header(METHOD, "subscriptions/listen");
        let response = self.origin.send(head, RequestBody::json(body)).await.ok()?;
        match heard::judge(response, self.origin.message_bytes_max).await {
            Heard::Messages(messages) if messages.is_stream() => {
                self.source = Some(Source {
                    messages,
                    lease: None,
                });
                Some(())
            }
            Heard::Messages(_) | Heard::Later(_) | Heard::Error(_) | Heard::Refused { .. } => None,
        }
    }

    async fn open_legacy(&mut self) -> Option<()> {
        let key = Key {
            caller: self.wish.caller,
            capabilities: "{}".into(),
        };
        let lease = self
            .sessions
            .open(&key, self.wish.credentials.as_ref())
            .await
            .ok()?;
        let session = Arc::clone(&lease.session);
        let response = self
            .origin
            .send(session.get(), RequestBody::empty())
            .await
            .ok()?;
        let Heard::Messages(messages) = heard::judge(response, self.origin.message_bytes_max).await
        else {
            return None;
        };
        let capabilities = Object::parse(session.capabilities.get()).unwrap_or_default();
        let filter = Object::parse(&self.wish.filter).unwrap_or_default();
        let offers = |kind: &str, what: &str| {
            let kind = capabilities.get_object(kind);
            kind.and_then(|kind| kind.get(what))
                .is_some_and(|raw| raw.get() == "true")
        };
        let mut honoured = Writer::object();
        for (key, kind) in [
            ("toolsListChanged", "tools"),
            ("promptsListChanged", "prompts"),
            ("resourcesListChanged", "resources"),
        ] {
            let asked = filter.get(key).is_some_and(|raw| raw.get() == "true");
            if asked && offers(kind, "listChanged") {
                honoured.raw(key, "true");
            }
        }
        if let Some(uris) = filter.get("resourceSubscriptions")
            && offers("resources", "subscribe")
        {
            let uris: Vec<&RawValue> = serde_json::from_str(uris.get()).unwrap_or_default();
            let mut taken = Vec::new();
            for uri in uris.into_iter().filter_map(string) {
                let mut params = Writer::object();
                params.str("uri", &uri);
                let id = self.origin.next_id();
                let subscribe = translate::request(id, "resources/subscribe", &params.end());
                if session.tell(subscribe).await.is_ok() {
                    taken.push(quote(&uri));
                }
            }
            honoured.raw("resourceSubscriptions", &format!("[{}]", taken.join(",")));
        }
        self.honoured = honoured.end();
        self.said
            .push_back(ListenEvent::Acknowledged(self.honoured.clone()));
        self.source = Some(Source {
            messages,
            lease: Some(lease),
        });
        Some(())
    }
}
