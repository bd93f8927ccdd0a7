//! The port that every connector implements: the request, and the events that the server sends about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::value::RawValue;

use crate::jobs::job_call::JobCall;
use crate::mcp::error::Failure;
use crate::mcp::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
use crate::upstream::credentials::Credentials;
use crate::upstream::forward;
use crate::upstream::forward::ClientHeaders;
use crate::upstream::pin::Pin;

/// One request to the wrapped server, in the client's words. The connector translates: it takes
/// its own JSON-RPC id and progress token, strips what the other era does not know and never
/// declares the Tasks extension.
#[must_use]
#[derive(Debug, Clone)]
pub struct UpstreamRequest {
    /// The caller whose session carries the request. Two callers never share a legacy session.
    pub caller: [u8; 16],
    /// The part of the client's credentials that the server receives. In memory only, never stored.
    pub credentials: Option<Credentials>,
    pub method: Arc<str>,
    /// The client's `params` as JSON, `_meta` and all. An object.
    pub params: Arc<str>,
    /// The client's capabilities as JSON, as declared on this request.
    pub capabilities: Arc<str>,
    /// The value that `Mcp-Name` must have, unencoded. `None` for methods without that header.
    pub name: Option<Arc<str>>,
    /// The client's `Mcp-Param-*` headers.
    pub param_headers: ClientHeaders,
    /// The client's other headers that go to the server. In memory only.
    pub headers: ClientHeaders,
    /// The parameters of the client's query that go to the server, as a query. In memory only.
    pub query: Option<Arc<str>>,
    /// Ask for progress notifications.
    pub wants_progress: bool,
    /// The least severe log level that the client asked for on this request.
    pub log_level: Option<Arc<str>>,
    /// Answers to the questions of an earlier round (modern upstreams).
    pub retry: Option<Arc<Retry>>,
    /// The time that a server without sessions may be silent after an answer to its question: most such servers
    /// lose the answer.
    pub answer_patience: Option<Duration>,
    /// Ask a legacy server for a task of its own, and follow the task to its end (2025-11-25, Tasks). Declare
    /// the Tasks extension to a modern server, so that it may answer with a task.
    pub native_task: bool,
    /// The call may start a job, which is followed to its end.
    pub job: Option<Arc<JobCall>>,
    /// Requests of one pin use one session, or one process.
    pub pin: Option<Pin>,
}

/// The headers and the parameters of a client's request that go to the server. In memory only, never stored.
#[derive(Debug, Clone, Default)]
pub struct Forwarded {
    /// The part of the client's credentials that the server receives.
    pub credentials: Option<Credentials>,
    /// The other headers that go to the server.
    pub headers: ClientHeaders,
    /// The parameters of the query that go to the server, as a query.
    pub query: Option<Arc<str>>,
}

impl UpstreamRequest {
    /// Returns `true` if the request can be sent again from what is stored of it, without its client's credentials
    /// and without the client's own session.
    pub fn is_anybodys(&self) -> bool {
        !self.is_personal() && !self.pin.as_ref().is_some_and(Pin::is_a_clients)
    }

    /// Returns `true` if the server may identify the client by what is sent: credentials, a cookie, a key, a
    /// parameter of the query. Such a request is never stored.
    pub fn is_personal(&self) -> bool {
        self.credentials.is_some() || self.query.is_some() || forward::may_identify(&self.headers)
    }

    /// Returns `true` if another process can fetch the rest of the answer: the request has nothing by which the server may identify
    /// the client, or only its credentials, which a later request of the client has, too. A later request need not have the other
    /// headers of this one.
    pub fn can_move(&self) -> bool {
        !self.is_personal() || self.credentials.is_some() && !forward::may_identify(&self.headers)
    }

    /// A request with nothing but its params, for a caller who declares nothing.
    pub fn new(caller: [u8; 16], method: impl Into<Arc<str>>, params: impl Into<Arc<str>>) -> Self {
        Self {
            caller,
            credentials: None,
            method: method.into(),
            params: params.into(),
            capabilities: "{}".into(),
            name: None,
            // Shared by all requests without such headers.
            param_headers: Arc::default(),
            headers: Arc::default(),
            query: None,
            wants_progress: false,
            log_level: None,
            retry: None,
            answer_patience: None,
            native_task: false,
            job: None,
            pin: None,
        }
    }

    /// The request of a call that another process sent: nothing of it is sent again, but progress is wanted.
    pub fn adopted(caller: [u8; 16], capabilities: Arc<str>) -> Self {
        Self::new(caller, "tools/call", "{}")
            .declaring(capabilities)
            .with_progress(true)
    }

    /// With the client's capabilities, as JSON.
    pub fn declaring(self, capabilities: impl Into<Arc<str>>) -> Self {
        Self {
            capabilities: capabilities.into(),
            ..self
        }
    }

    /// With what is forwarded of the client's headers.
    pub fn forwarding(self, forwarded: Forwarded) -> Self {
        Self {
            credentials: forwarded.credentials,
            headers: forwarded.headers,
            query: forwarded.query,
            ..self
        }
    }

    /// The headers and parameters of the client's request that go to the server.
    pub fn forwarded(&self) -> Forwarded {
        Forwarded {
            credentials: self.credentials.clone(),
            headers: Arc::clone(&self.headers),
            query: self.query.clone(),
        }
    }

    /// With what the server gets of the client's credentials.
    pub fn with_credentials(self, credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            ..self
        }
    }

    /// Sets the description of the params in `Mcp-Name` and the `Mcp-Param-*` headers.
    pub fn described_by(self, name: Option<Arc<str>>, param_headers: ClientHeaders) -> Self {
        Self {
            name,
            param_headers,
            ..self
        }
    }

    pub fn with_progress(self, wants_progress: bool) -> Self {
        Self {
            wants_progress,
            ..self
        }
    }

    /// In that trace, whatever trace the params and the headers name.
    pub fn traced(self, context: &TraceContext) -> Self {
        // Params that cannot be read go on as they are, because a trace must not cost the call.
        let params = context.in_params(&self.params).map(Arc::from);
        let is_other = |name: &HeaderName| *name != TRACEPARENT && *name != TRACESTATE;
        let headers = self.headers.iter().filter(|(name, _)| is_other(name));
        Self {
            headers: headers.cloned().chain(context.headers()).collect(),
            params: params.unwrap_or(self.params),
            ..self
        }
    }

    /// For a call, which waits so long for the server after an answer, and may be a task of the server's own.
    pub fn for_call(self, answer_patience: Option<Duration>, native_task: bool) -> Self {
        Self {
            answer_patience,
            native_task,
            ..self
        }
    }

    /// On the session or the process of that pin, where there is one.
    pub fn on(self, pin: Option<Pin>) -> Self {
        Self { pin, ..self }
    }

    /// Another request of the same client, about a task of the server's own that this one created.
    pub(super) fn about_task(&self, method: &str, params: impl Into<Arc<str>>) -> Self {
        Self {
            method: method.into(),
            params: params.into(),
            // `Mcp-Name` and `Mcp-Param-*` describe the params of the call, which are not those of this request.
            name: None,
            param_headers: [].into(),
            wants_progress: false,
            retry: None,
            job: None,
            ..self.clone()
        }
    }
}

/// The second half of a multi-round-trip request.
#[derive(Debug, Clone)]
pub struct Retry {
    /// `inputResponses` as JSON, under the upstream's own keys.
    pub input_responses: Arc<str>,
    pub request_state: Option<Arc<str>>,
}

/// An event that the server sends about one request.
#[derive(Debug)]
pub enum Event {
    /// A program that had to be started first has the request.
    Sent,
    /// The `params` of a `notifications/progress` of this request; the token in it is ours.
    Progress(Box<RawValue>),
    /// The `params` of a `notifications/message` at or above the level asked for.
    Log(Box<RawValue>),
    /// A legacy server asks the client. It waits for [`Control::answer`].
    Question(Question),
    /// The call started the job of this id.
    Job(Box<str>),
    /// From now on, [`Control::resume_point`] returns the point from which another replica can fetch the answer.
    Resumable(Keep),
    /// The server does not accept the credentials of the call any more, which runs on there: perhaps another request of its client
    /// brings better ones.
    CredentialsRefused,
    /// The server is busy and ran nothing: raincheck asks again after this pause. `None`: it has taken
    /// the call now.
    Later(Option<Duration>),
    /// The answer: any result, also `input_required` and `isError`. Nothing follows.
    Result(Box<RawValue>),
    /// The answer: a JSON-RPC error object, verbatim. Nothing follows.
    Error(UpstreamError),
    /// There will be no answer. Nothing follows.
    Failed(Failure),
}

/// When a resume point is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// After a moment: the answer may come sooner.
    Soon,
    /// At once: the answer takes long, and nothing else names the job at the server.
    AtOnce,
}

impl Event {
    /// Returns `true` if nothing follows.
    pub fn is_last(&self) -> bool {
        self.is_answer() || matches!(self, Self::Failed(_))
    }

    /// Returns `true` if the event is the server's answer.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Result(_) | Self::Error(_))
    }
}

/// An error answer of the wrapped server.
#[derive(Debug, Clone)]
pub struct UpstreamError {
    pub error: Box<RawValue>,
    /// The HTTP status it came with.
    pub status: u16,
    /// `WWW-Authenticate`, where the answer had it.
    pub www_authenticate: Option<HeaderValue>,
}

impl UpstreamError {
    /// The error of a JSON-RPC message, which came with HTTP 200 or over a line.
    pub fn in_message(error: Box<RawValue>) -> Self {
        Self {
            error,
            status: 200,
            www_authenticate: None,
        }
    }
}

/// A server-to-client request of a legacy server.
#[derive(Debug, Clone)]
pub struct Question {
    /// The server's JSON-RPC id, as JSON.
    pub id: Arc<str>,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: Arc<str>,
    pub params: Option<Box<RawValue>>,
}

/// One request under way at the wrapped server.
///
/// Dropping it closes the response stream: that cancels a modern call. A legacy call runs on until
/// [`Control::cancel`] notifies the server.
pub struct Exchange {
    /// Cancel safe to poll: dropping a pending `next()` loses no event. Ends after the answer.
    /// The request is sent on the first poll.
    pub events: BoxStream<'static, Event>,
    pub control: Arc<dyn Control>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}

/// The time that a [`Control::cancel`] may take.
pub const CANCELLING: Duration = Duration::from_secs(40);

/// The time that a cancel over a line, or of a task of the server's own, may take.
pub(super) const CANCEL_PATIENCE: Duration = Duration::from_secs(2);

/// Reaches the wrapped server while an [`Exchange`] is open.
#[async_trait]
pub trait Control: Send + Sync {
    /// Answers a [`Question`] with a JSON-RPC result, or refuses it with a JSON-RPC error. To send an answer
    /// twice does no harm: the server ignores the second.
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure>;

    /// Notifies the server that the client no longer waits, by the signal of the server's era. Drop the exchange
    /// afterwards, and not before: polling its events is what sends a call, and a server cannot cancel a call that it
    /// has not received. This may take [`CANCELLING`] if the server is slow.
    async fn cancel(&self);

    /// Returns the data that another process needs to carry this call on, as of the last event taken. The text is
    /// opaque, and a secret because it names a session. `None` if the server's streams cannot be resumed, or if more of the
    /// client would be needed than its credentials, which are never stored.
    fn resume_point(&self) -> Option<Box<str>> {
        None
    }

    /// Returns `true` if another process carries the call on as well as this one, once it has the resume point.
    fn moves_at_once(&self) -> bool {
        false
    }

    /// This process has taken an adopted call over, and may close its session afterwards.
    fn hold(&self) {}

    /// Notes that another process carries the call on, so that dropping the exchange must send nothing to the server.
    fn leave(&self) {}
}

/// An answer to a server's question.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The JSON of a result.
    Result(Arc<str>),
    /// The JSON of an error object.
    Refused(Arc<str>),
}
