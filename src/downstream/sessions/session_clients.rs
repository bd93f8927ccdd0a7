//! The known client of each session at the server: a session identifies it once, in `initialize`.
//!
//! A client that is not known costs no write. A session that lasts longer than its value is, on a replica that does not
//! know it yet, the session of an unknown client.

use bytes::Bytes;
use hyper::HeaderMap;

use super::session_facts::{SessionFact, SessionFacts};
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::mcp::json::{Object, Writer, raw};
use crate::task::clients::{ClientTerms, KnownClient};

/// The clients of the newest sessions.
pub type SessionClients = SessionFacts<ClientTerms>;

impl SessionFact for ClientTerms {
    const SEVERAL: Option<Self> = None;
    const NAMED: &'static [&'static str] = &[];
    const LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;
    const VALUES_MAX: u64 = 10_000;

    /// The name and the least version of the line. A replica with another table finds its own line by them.
    fn value(self) -> Option<Bytes> {
        let client = self.client()?;
        let mut out = Writer::object();
        out.str("name", client.name.trim_end_matches('*'));
        out.str("version", client.since);
        Some(out.end().into())
    }

    fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        Object::parse(text).ok()?;
        let info = raw(text.to_owned()).ok()?;
        Some(Self::of(KnownClient::of_info(&info)))
    }
}

impl SessionClients {
    /// The client of a message on a session at the server, where the message may begin a call or a list of tools.
    pub(super) async fn of(&self, by: &Requester, message: &LegacyMessage<'_>) -> ClientTerms {
        let Some(request) = message.request() else {
            return ClientTerms::default();
        };
        match &*request.method {
            "initialize" => {
                let info = request.params.get("clientInfo");
                ClientTerms::of(info.and_then(KnownClient::of_info))
            }
            "tools/call" | "tools/list" => match by.session.or_else(|| sole_session(by)) {
                Some(session) => self.find(session, |_| true).await.unwrap_or_default(),
                None => ClientTerms::default(),
            },
            _ => ClientTerms::default(),
        }
    }

    /// Remembers the client of a session that the server has agreed to. The head of the answer names the session.
    pub(in crate::downstream) async fn note(&self, by: &Requester, head: &HeaderMap) {
        let session = SessionKey::named(&by.caller, head).or_else(|| sole_session(by));
        if let Some(session) = session {
            self.begin(by, session, by.client).await;
        }
    }
}

/// The session of the one client on a pipe, which may have no name.
fn sole_session(by: &Requester) -> Option<SessionKey> {
    by.is_piped.then(|| SessionKey::of(&by.caller, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::clients::CLIENTS;

    #[test]
    fn a_stored_client_is_the_line_that_it_was() {
        for line in CLIENTS {
            let value = ClientTerms::of(Some(line)).value().unwrap();
            let stored = ClientTerms::read(&value).unwrap();
            assert!(std::ptr::eq(stored.client().unwrap(), line), "{line}");
        }
        assert!(ClientTerms::read(b"x").is_none());
    }
}
