//! The known client of each session at the server: a session identifies it once, in `initialize`.
//!
//! The replica that passed the `initialize` remembers it, and passes it to the others by a value in the store. A
//! client that is not known costs no write.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::lock::Mutex;
use crate::mcp::json::{Object, Writer, raw};
use crate::store::key_value::KeyValue;
use crate::store::kv::{Kind, Name};
use crate::store::quota::{Allowance, Quotas};
use crate::task::clients::{ClientTerms, KnownClient};
use crate::upstream::client_session::newest::NewestSessions;

/// The time that a request waits for the store. Without the value a call goes on as the call of an unknown
/// client.
const PATIENCE: Duration = Duration::from_millis(250);

/// The time that the other replicas can find the client of the session. A session that lasts longer is then, on
/// a replica that does not know it yet, the session of an unknown client.
const LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;

/// The time that a session counts as that of an unknown client after the store had no value.
const ASKED_AGAIN: Duration = Duration::from_secs(10);

/// The clients of the newest sessions.
#[derive(Debug)]
pub struct SessionClients {
    newest: Mutex<NewestSessions<SessionKey, FoundClient>>,
    /// The values that this process wrote. Beyond them, the other replicas take a client for an unknown one.
    told: Quotas,
}

impl Default for SessionClients {
    fn default() -> Self {
        let most = |entries| Allowance {
            entries,
            ..Allowance::ANY
        };
        Self {
            newest: Mutex::default(),
            told: Quotas::new(most(5_000), most(10_000)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum FoundClient {
    /// `told_until_ms`: when the value expires that this process wrote.
    Here {
        client: ClientTerms,
        told_until_ms: Option<u64>,
    },
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
        let known = self.newest.lock().find(&session);
        match known {
            Some(FoundClient::Here { client, .. }) => return client,
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
        let here = |client| FoundClient::Here {
            client,
            told_until_ms: None,
        };
        let fact = found.map_or_else(|| FoundClient::Not(Instant::now()), here);
        // A store that did not answer counts as one without a value, so that it does not delay each request.
        self.newest.lock().remember(session, fact);
        found.unwrap_or_default()
    }

    /// Remembers the client of a session that the server has agreed to. The head of the answer names the session.
    pub(in crate::downstream) async fn note(
        &self,
        kv: &KeyValue,
        now_ms: u64,
        by: &Requester,
        head: &HeaderMap,
    ) {
        let session = SessionKey::named(&by.caller, head);
        let Some(session) = session.or_else(|| sole_session(by)) else {
            return;
        };
        let expires_ms = now_ms.saturating_add(LIFETIME_MS);
        let told = by.client.client().filter(|_| {
            let enter = || self.told.enter(by.caller, 0, expires_ms, now_ms);
            // The client of a pipe never comes to another replica, so it needs no value.
            !by.is_piped && enter().is_ok()
        });
        let fact = FoundClient::Here {
            client: by.client,
            told_until_ms: told.map(|_| expires_ms),
        };
        self.newest.lock().remember(session, fact);
        let Some(client) = told else { return };
        let value = Bytes::from(value_of(client));
        let lifetime = Duration::from_millis(LIFETIME_MS);
        let told = timeout(PATIENCE, kv.put(name(session), value, lifetime)).await;
        // Not an error of the request: this replica has the client, and the others take it for an unknown one.
        if !matches!(told, Ok(Ok(()))) {
            tracing::debug!("replicas were not told which client has a session");
        }
    }

    /// Removes the value about a session that its client ended here. The client does not wait for that.
    pub(super) fn end(&self, kv: &KeyValue, passing: &TaskTracker, now_ms: u64, by: &Requester) {
        let Some(session) = by.session else { return };
        // Only a process that wrote the value has counted it, so only that process removes it.
        if let Some(FoundClient::Here {
            told_until_ms: Some(expires_ms),
            ..
        }) = self.newest.lock().forget(&session)
        {
            self.told.leave(&by.caller, 0, expires_ms, now_ms);
            let kv = kv.clone();
            passing.spawn(async move {
                // Otherwise the value expires.
                let _ = timeout(PATIENCE, kv.remove(name(session))).await;
            });
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
