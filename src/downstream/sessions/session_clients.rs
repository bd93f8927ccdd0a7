//! Which known client has which session at the server: a session says it once, in `initialize`.
//!
//! The replica that passed the `initialize` remembers it, and tells the others by a value in the store. A client that is not
//! known costs no write.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::sessions::newest::NewestSessions;
use crate::lock::Mutex;
use crate::mcp::json::{Object, Writer, raw};
use crate::store::key_value::KeyValue;
use crate::store::kv::{Kind, Name};
use crate::task::clients::{ClientTerms, KnownClient};

/// How long a request waits for the store. Without the value a call goes on as the call of an unknown client.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the other replicas can find out whose session it is. A session that lasts longer is then, on a replica that does
/// not know it yet, the session of an unknown client.
const LIFETIME: Duration = Duration::from_hours(24);

/// How long a session counts as that of an unknown client after the store had no value.
const ASKED_AGAIN: Duration = Duration::from_secs(10);

/// The clients of the newest sessions.
#[derive(Debug, Default)]
pub struct SessionClients(Mutex<NewestSessions<FoundClient>>);

#[derive(Debug, Clone, Copy)]
enum FoundClient {
    Here(ClientTerms),
    /// The store had no value then.
    Not(Instant),
}

impl SessionClients {
    /// The client of a message on a session at the server, where the message may begin a call or a list of tools.
    pub(super) async fn of(
        &self,
        kv: &KeyValue,
        by: &Requester,
        message: &LegacyMessage<'_>,
    ) -> ClientTerms {
        let LegacyMessage::Request(request) = message else {
            return ClientTerms::default();
        };
        if request.method == "initialize" {
            let info = request.params.get("clientInfo");
            return ClientTerms::of(info.and_then(KnownClient::of_info));
        }
        if !matches!(&*request.method, "tools/call" | "tools/list") {
            return ClientTerms::default();
        }
        let Some(session) = by.session.or_else(|| sole_session(by)) else {
            return ClientTerms::default();
        };
        let known = self.0.lock().find(session);
        match known {
            Some(FoundClient::Here(client)) => return client,
            Some(FoundClient::Not(then))
                if Instant::now().saturating_duration_since(then) < ASKED_AGAIN =>
            {
                return ClientTerms::default();
            }
            Some(FoundClient::Not(_)) | None => {}
        }
        let stored = timeout(PATIENCE, kv.find(name(session))).await;
        let stored = stored.ok().and_then(Result::ok).flatten();
        let found = stored.and_then(|value| stored_client(&value));
        let fact = found.map_or_else(|| FoundClient::Not(Instant::now()), FoundClient::Here);
        self.0.lock().remember(session, fact);
        found.unwrap_or_default()
    }

    /// Remembers the client of a session that the server has agreed to. The head of the answer names the session.
    pub(in crate::downstream) async fn note(
        &self,
        kv: &KeyValue,
        by: &Requester,
        head: &HeaderMap,
    ) {
        let session = SessionKey::named(&by.caller, head);
        let Some(session) = session.or_else(|| sole_session(by)) else {
            return;
        };
        self.0
            .lock()
            .remember(session, FoundClient::Here(by.client));
        let Some(client) = by.client.client().filter(|_| !by.is_piped) else {
            return;
        };
        let value = Bytes::from(value_of(client));
        let told = timeout(PATIENCE, kv.put(name(session), value, LIFETIME)).await;
        if !matches!(told, Ok(Ok(()))) {
            tracing::debug!("replicas were not told which client has a session");
        }
    }
}

/// The session of the one client on a pipe, which may have no name.
fn sole_session(by: &Requester) -> Option<SessionKey> {
    by.is_piped.then(|| SessionKey::of(&by.caller, ""))
}

fn name(session: SessionKey) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    Name::of(Kind::Client, &[&session])
}

/// The name and the least version of the line. A replica with another table finds its own line by them.
fn value_of(client: &KnownClient) -> String {
    let mut out = Writer::object();
    out.str("name", client.name.trim_end_matches('*'));
    out.str("version", client.since);
    out.end()
}

fn stored_client(value: &[u8]) -> Option<ClientTerms> {
    let text = std::str::from_utf8(value).ok()?;
    Object::parse(text).ok()?;
    let info = raw(text.to_owned()).ok()?;
    Some(ClientTerms::of(KnownClient::of_info(&info)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::clients::CLIENTS;

    #[test]
    fn a_stored_client_is_the_line_that_it_was() {
        for line in CLIENTS {
            let stored = stored_client(value_of(line).as_bytes()).unwrap();
            assert!(std::ptr::eq(stored.client().unwrap(), line), "{line}");
        }
        assert!(stored_client(b"x").is_none());
    }
}
