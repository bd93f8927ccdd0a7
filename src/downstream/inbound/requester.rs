//! The requester of a request: read once, from the head of the request.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::Arc;

use foldhash::quality::FixedState;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue, ORIGIN, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Version};
use serde_json::value::RawValue;

use crate::auth::callers::Callers;
use crate::auth::identity::Identity;
use crate::downstream::inbound::connection_polls::ConnectionPolls;
use crate::downstream::inbound::session_key::SessionKey;
use crate::mcp::headers::{SESSION_ID, is_of_protocol};
use crate::mcp::hex;
use crate::mcp::version::Era;
use crate::runner::CallClient;
use crate::runner::client_note::ClientNote;
use crate::runner::same_calls::RunningCall;
use crate::task::clients::ClientTerms;
use crate::task::clocks::ClockName;
use crate::task::digest::Digest;
use crate::task::id::{Caller, TaskId};
use crate::task::policy::Rules;
use crate::telemetry::traces::RequestSpan;
use crate::upstream::{Credentials, Forwarded};

/// The client behind one request. It is read once, so that no part that answers reads the same headers in a way of
/// its own.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the head of the request tells"
)]
pub(in crate::downstream) struct Requester {
    pub(in crate::downstream) caller: Caller,
    /// The identity in the client's credential, where clients must show one.
    pub(in crate::downstream) identity: Option<Arc<Identity>>,
    /// The request identifies its caller. All requests without credentials are the anonymous caller's.
    pub(in crate::downstream) has_credentials: bool,
    /// The settings for the client by the name that it gives itself. Known where the request may begin a call or a
    /// list of tools.
    pub(in crate::downstream) client: ClientTerms,
    /// The rules that apply to the request, to its end.
    pub(in crate::downstream) rules: Arc<Rules>,
    /// The credentials that the wrapped server gets.
    pub(in crate::downstream) credentials: Option<Credentials>,
    /// The parameters of the query that the wrapped server gets, as a query.
    pub(in crate::downstream) query: Option<Arc<str>>,
    /// The list that names the client's calls: the list of its caller or, if requests have no credentials, of its
    /// session or its connection. `None`: raincheck cannot distinguish the client from other clients.
    pub(in crate::downstream) list_key: Option<Caller>,
    /// The session that the request names.
    pub(in crate::downstream) session: Option<SessionKey>,
    /// The client is on this machine, and no proxy stands between.
    pub(in crate::downstream) is_local: bool,
    /// A hash of the description of itself that a modern client sends with each request, and of its headers. Known where the
    /// request may begin a call.
    pub(in crate::downstream) program: Option<u64>,
    /// The era that the client speaks.
    pub(in crate::downstream) era: Era,
    /// The client accepts event streams.
    pub(in crate::downstream) reads_events: bool,
    /// An event of any size reaches the client.
    pub(in crate::downstream) takes_large_events: bool,
    /// The client is on our standard input and output.
    pub(in crate::downstream) is_piped: bool,
    /// Where its front notes how the client leaves.
    pub(in crate::downstream) note: Option<ClientNote>,
    /// The client is a web page, which a browser gives six connections at the most.
    pub(in crate::downstream) is_web_page: bool,
    /// The polls of its connection that are held, where many requests share the connection.
    pub(in crate::downstream) connection_polls: Option<ConnectionPolls>,
    /// The value of the `Idempotency-Key` header.
    pub(in crate::downstream) idempotency_key: KeyHeader,
    /// The caller's tasks that the request names as related. Known where the request may begin a call.
    pub(in crate::downstream) related: Vec<TaskId>,
    /// The call in the table of the calls that run, where the request is a `tools/call` of a modern client that can be told
    /// apart.
    pub(in crate::downstream) running: Option<RunningCall>,
    /// The span of the request, where its trace is recorded.
    pub(in crate::downstream) span: Option<Arc<RequestSpan>>,
}

/// In the extensions of a request: its client has no connection that could be dropped without it.
#[derive(Debug, Clone, Copy)]
pub(in crate::downstream) struct Piped;

/// In the extensions of a request: the connection that is the client's alone.
#[derive(Debug, Clone, Copy)]
pub(in crate::downstream) struct OwnConnection(pub(in crate::downstream) SessionKey);

/// The shortest session id by which calls are listed. Most servers make ids of 32 or more; a short one could be a number
/// that others can guess.
const SESSION_ID_MIN: usize = 16;

/// The `Idempotency-Key` header of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::downstream) enum KeyHeader {
    Absent,
    Key(Box<str>),
    /// The header occurs twice, or its value is not text.
    Malformed,
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The HTTP library of the official Python client 2.x and of `FastMCP` 4. It refuses an event of more than 1 MiB, and
/// the call fails. Their `clientInfo` is no evidence: 1.x, which has no limit, sends the same.
const LIMITS_EVENTS: &[u8] = b"python-httpx2/";

/// The requests that a server may send to a client of a legacy session. The client declared in `initialize` which of
/// them it can answer, perhaps through another replica; the client refuses the rest.
pub(in crate::downstream) const ASKABLE: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

impl Requester {
    /// `identity`: who the client proved to be. `credentials`: what the wrapped server gets of those in the request.
    pub(in crate::downstream) fn of(
        callers: &Callers,
        parts: &Parts,
        era: Era,
        identity: Option<Arc<Identity>>,
        credentials: Option<Credentials>,
        rules: Arc<Rules>,
    ) -> Self {
        let headers = &parts.headers;
        let caller = callers.of(identity.as_deref(), headers);
        let has_credentials = caller != callers.anonymous();
        let session = SessionKey::named(&caller, headers);
        let list_key = if has_credentials {
            Some(caller)
        } else {
            session_of(session, parts, era).map(|session| Caller::from_bytes(*session.as_bytes()))
        };
        Self {
            caller,
            list_key,
            identity,
            has_credentials,
            credentials,
            query: None,
            client: ClientTerms::default(),
            rules,
            session,
            is_local: false,
            program: None,
            era,
            reads_events: accepts_events(headers),
            takes_large_events: takes_large_events(headers),
            is_piped: parts.extensions.get::<Piped>().is_some(),
            note: parts.extensions.get().cloned(),
            // Over HTTP/2 a browser sends all its requests on one connection, so the six are no limit.
            is_web_page: parts.version < Version::HTTP_2 && headers.contains_key(ORIGIN),
            connection_polls: parts.extensions.get().cloned(),
            idempotency_key: key_header(headers),
            related: Vec::new(),
            running: None,
            span: None,
        }
    }

    /// The requester of the same request, whose client is known by now.
    pub(in crate::downstream) fn known_as(&self, client: ClientTerms) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// The requester of the same request, whose related tasks are known by now.
    pub(in crate::downstream) fn about(&self, related: Vec<TaskId>) -> Self {
        Self {
            related,
            ..self.clone()
        }
    }

    /// Returns the requests that a client of a legacy session can be sent. Without a session no answer finds its
    /// call.
    pub(in crate::downstream) fn session_capabilities(&self) -> &'static str {
        match self.session {
            Some(_) => ASKABLE,
            None => "{}",
        }
    }

    /// Returns the part of the request that the server gets, should raincheck have to go on with a call of the client.
    pub(in crate::downstream) fn shows(&self) -> Forwarded {
        Forwarded {
            credentials: self.credentials.clone(),
            query: self.query.clone(),
            ..Forwarded::default()
        }
    }

    /// The client, for a call of its request. `session`: the session by which any replica takes its answers.
    pub(in crate::downstream) fn client_of_call(&self, session: Option<SessionKey>) -> CallClient {
        CallClient {
            caller: self.caller,
            label: self.label(),
            era: self.era,
            list_key: self.list_key,
            session: session.map(|session| *session.as_bytes()),
            gives_up_as: self.gives_up_as(),
            program: self.program.unwrap_or_default(),
            note: self.note.clone(),
            running: self.running.clone(),
            related: self.related.clone(),
            span: self.span.clone(),
        }
    }

    /// The name under which the client may make the same call again. `None`: raincheck cannot distinguish the client from
    /// other clients, which must not see its calls.
    pub(in crate::downstream) fn repeats_as(&self) -> Option<[u8; 16]> {
        match (&self.session, self.era) {
            _ if self.has_credentials => Some(*self.caller.as_bytes()),
            (Some(session), Era::Legacy) => Some(*session.as_bytes()),
            (Some(_), Era::Modern) | (None, _) => None,
        }
    }

    /// The name under which the client may collect a call that it gave up: a session, because a session may have a state at
    /// the server, or else the caller, its pipe, or on this machine what the client says of itself. The query of a request tells servers
    /// apart.
    pub(in crate::downstream) fn gives_up_as(&self) -> Option<[u8; 16]> {
        let whose = match (&self.session, self.era) {
            (Some(session), Era::Legacy) => *session.as_bytes(),
            // Several clients may have one credential, such as the tenants of a gateway.
            _ if self.has_credentials => self.named_by_program(*self.caller.as_bytes()),
            // A pipe has one client.
            _ if self.is_piped => *self.list_key?.as_bytes(),
            _ => self.local_name()?,
        };
        Some(match &self.query {
            Some(query) => *Digest::of(&[&hex::encode(&whose), query]).as_bytes(),
            None => whose,
        })
    }

    /// The clock that the client has for calls of this tool. `None`: raincheck cannot distinguish the client from others.
    pub(in crate::downstream) fn clock_of(&self, tool: &str) -> Option<ClockName> {
        let program = self.program.unwrap_or_default();
        Some(ClockName::of(&self.gives_up_as()?, program, tool))
    }

    /// The name of a client of this machine that shows no credentials.
    fn local_name(&self) -> Option<[u8; 16]> {
        self.program.filter(|_| self.is_local)?;
        Some(self.named_by_program(*b"local\0\0\0\0\0\0\0\0\0\0\0"))
    }

    /// The name of one of the clients that have this name together. Its first half stays: no client can make another's of it.
    fn named_by_program(&self, mut name: [u8; 16]) -> [u8; 16] {
        let program = self.program.unwrap_or_default().to_le_bytes();
        for (to, from) in name[8..].iter_mut().zip(program) {
            *to ^= from;
        }
        name
    }

    /// Recognises a modern client by its description of itself (`clientInfo`) and by its headers: a server may know its clients
    /// by one of them.
    pub(in crate::downstream) fn recognise(
        &mut self,
        headers: &HeaderMap,
        info: Option<&RawValue>,
    ) {
        // A secure hash would cost each call too much. To make a request with the hash of another client, one must know that
        // client's headers, and could send those.
        let mut hasher = FixedState::default().build_hasher();
        info.map_or("", RawValue::get).hash(&mut hasher);
        for (name, value) in headers {
            // A client may renew its token between two tries: the caller is known without it.
            if name != AUTHORIZATION && !is_of_the_request(name.as_str()) {
                (name.as_str(), value.as_bytes()).hash(&mut hasher);
            }
        }
        self.program = Some(hasher.finish());
    }

    /// The name that operators know the client by, where clients have one.
    pub(in crate::downstream) fn label(&self) -> Option<Arc<str>> {
        self.identity.as_ref()?.label.clone()
    }

    /// The session, or the caller where the request names no session: of whom raincheck remembers something.
    pub(in crate::downstream) fn memory_key(&self) -> [u8; 16] {
        match &self.session {
            Some(session) => *session.as_bytes(),
            None => *self.caller.as_bytes(),
        }
    }
}

/// Returns the session that distinguishes a client without credentials from others: its connection, or the session of
/// a legacy client.
fn session_of(named: Option<SessionKey>, parts: &Parts, era: Era) -> Option<SessionKey> {
    if let Some(OwnConnection(key)) = parts.extensions.get() {
        return Some(*key);
    }
    // Only legacy clients have sessions: on a modern request the header could be anything.
    let named = named.filter(|_| era == Era::Legacy)?;
    let id = parts.headers.get(SESSION_ID)?;
    (id.len() >= SESSION_ID_MIN).then_some(named)
}

/// Returns `true` for a header that says nothing of its client, or something else with each request.
fn is_of_the_request(name: &str) -> bool {
    match name.as_bytes() {
        b"accept"
        | b"accept-encoding"
        | b"accept-language"
        | b"b3"
        | b"baggage"
        | b"cf-ray"
        | b"elastic-apm-traceparent"
        | b"newrelic"
        | b"uber-trace-id"
        | b"x-appgw-trace-id"
        | b"x-forwarded-port"
        | b"x-kong-request-id"
        | b"connection"
        | b"content-length"
        | b"content-type"
        | b"fly-request-id"
        | b"host"
        | b"request-id"
        | b"sentry-trace"
        | b"traceparent"
        | b"tracestate"
        | b"transfer-encoding"
        | b"x-amz-cf-id"
        | b"x-amzn-trace-id"
        | b"x-azure-ref"
        | b"x-cloud-trace-context"
        | b"x-correlation-id"
        | b"x-request-id"
        | b"x-request-start"
        | b"x-vercel-id" => true,
        [b'm', b'c', b'p', b'-', ..] => is_of_protocol(name),
        other => ["x-b3-", "x-datadog-", "x-envoy-"]
            .iter()
            .any(|begins| other.starts_with(begins.as_bytes())),
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(ACCEPT).iter();
    values.any(|value| {
        let value = value.to_str().unwrap_or_default();
        let kinds = ["text/event-stream", "text/*", "*/*"];
        kinds.iter().any(|kind| value.contains(kind))
    })
}

fn takes_large_events(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT);
    !agent.is_some_and(|agent| agent.as_bytes().starts_with(LIMITS_EVENTS))
}

fn key_header(headers: &HeaderMap) -> KeyHeader {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => KeyHeader::Absent,
        (Some(Ok(value)), None) => KeyHeader::Key(unquoted(value.trim_matches([' ', '\t'])).into()),
        (Some(_), _) => KeyHeader::Malformed,
    }
}

/// The header is a string of HTTP's structured fields, quotes and all; most clients write it bare.
fn unquoted(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .filter(|inside| !inside.contains(['"', '\\']))
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::CredentialRule;

    fn requester(
        headers: &[(&'static str, &'static str)],
        forwards_credentials: bool,
    ) -> Requester {
        let mut request = hyper::Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let callers = Callers::new(&[1; 32]);
        let rule = CredentialRule {
            forwards: forwards_credentials,
            ..CredentialRule::default()
        };
        let credentials = rule.of(&parts.headers);
        Requester::of(
            &callers,
            &parts,
            Era::Legacy,
            None,
            credentials,
            Arc::default(),
        )
    }

    #[test]
    fn the_head_says_who_asks() {
        let nobody = requester(&[], true);
        assert!(!nobody.has_credentials && nobody.credentials.is_none());
        assert!(nobody.session.is_none() && !nobody.reads_events);
        assert_eq!(nobody.session_capabilities(), "{}");
        assert_eq!(nobody.memory_key(), *nobody.caller.as_bytes());

        let alice = ("authorization", "Bearer a");
        let session = ("mcp-session-id", "s");
        let alice = requester(&[alice, session, ("accept", "*/*")], true);
        assert!(alice.has_credentials && alice.credentials.is_some());
        assert!(alice.reads_events && alice.takes_large_events);
        assert_ne!(alice.caller, nobody.caller);
        assert_eq!(alice.session, Some(SessionKey::of(&alice.caller, "s")));
        assert_eq!(alice.session_capabilities(), ASKABLE);
        assert_eq!(alice.memory_key(), *alice.session.unwrap().as_bytes());
    }

    #[test]
    fn the_server_gets_credentials_only_where_both_are_one_resource() {
        let alice = requester(&[("authorization", "Bearer a")], false);
        assert!(alice.has_credentials && alice.credentials.is_none());
    }

    #[test]
    fn a_key_in_quotes_is_the_key() {
        assert_eq!(unquoted("\"a b\""), "a b");
        for bare in ["a", "\"", "\"a", "\"a\\\"b\"", ""] {
            assert_eq!(unquoted(bare), bare);
        }
        assert_eq!(requester(&[], false).idempotency_key, KeyHeader::Absent);
        let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
        assert_eq!(
            requester(&twice, false).idempotency_key,
            KeyHeader::Malformed
        );
    }
}
