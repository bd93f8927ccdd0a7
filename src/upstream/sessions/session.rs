//! One session at a legacy server: the headers of its requests, messages to the server, and its end.

use std::any::Any;
use std::fmt;
use std::ops::Not;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hyper::Response;
use hyper::header::HeaderValue;
use hyper::http::request;
use serde::{Deserialize, Serialize};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::{Object, Writer, string};
use crate::telemetry::counted::Counted;
use crate::upstream::client_session::needed::Needed;
use crate::upstream::credentials::{Credentials, LatestCredentials};
use crate::upstream::discovery::discovered::Discovered;
use crate::upstream::failures::RESET;
use crate::upstream::forward::ClientHeaders;
use crate::upstream::http::cookies::{Cookies, FirstOfName};
use crate::upstream::http::origin::Origin;
use crate::upstream::http::refusal;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::initialize::Initialized;
use crate::upstream::pool::{PooledSession, Questions};
use crate::upstream::port::UpstreamRequest;
use crate::upstream::sessions::calls::SessionCalls;
use crate::upstream::sessions::doubt::Doubt;
use crate::upstream::translate;

/// The time that a server may take to accept a message.
const TELL: Duration = Duration::from_secs(30);

/// One session, as the server described it.
#[derive(Debug)]
pub(in crate::upstream) struct ServerSession {
    origin: Arc<Origin>,
    stamp: Stamp,
    /// The server's description of itself. `None` if the server sent it to a client.
    described: Option<Arc<Discovered>>,
    log_level: Mutex<Option<Arc<str>>>,
    /// `true` if other calls use the session, too.
    shared: bool,
    /// `true` if another process uses the session, or may use it.
    left: AtomicBool,
    /// The capabilities that were declared to the server, as JSON.
    declared: Arc<str>,
    background: SessionBackground,
    /// Which tasks need the session, if it is a client's own.
    needed: Needed,
    doubt: Doubt,
    _counted: Counted,
}

/// The headers of every request on a session.
#[derive(Debug)]
struct Stamp {
    /// `None`: the server has no sessions.
    id: Option<HeaderValue>,
    version: HeaderValue,
    credentials: LatestCredentials,
    cookies: Arc<Cookies>,
}

/// The work that goes on beside a session's calls, until the session ends.
#[derive(Debug)]
struct SessionBackground {
    calls: Arc<SessionCalls>,
    unasked: Box<dyn Unasked>,
    ending: DropGuard,
    services: TaskTracker,
}

/// The stream on which the server sends messages of its own.
#[async_trait]
pub(in crate::upstream) trait Unasked: Any + fmt::Debug + Send + Sync {
    /// Returns `true` if the session is a client's own, which raincheck neither begins nor ends.
    fn is_a_clients(&self) -> bool;

    /// Reads the stream until the session ends. Resolves when the server has accepted the request for it, or
    /// after a moment.
    async fn hear(&self, session: &Arc<ServerSession>);
}

impl PooledSession for ServerSession {
    fn is_open(&self) -> bool {
        !self.background.ending.token().is_cancelled()
    }

    /// Returns the default, which distinguishes no questions: calls that may ask share a session only where that is
    /// configured.
    fn questions(&self) -> Questions {
        Questions::default()
    }

    fn close_unused(self: &Arc<Self>) {
        self.close_soon();
    }
}

/// The identity of a client's session and of the client.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct SessionIdentity {
    pub(in crate::upstream) caller: [u8; 16],
    /// A server without sessions gives none.
    pub(in crate::upstream) id: Option<HeaderValue>,
    pub(in crate::upstream) version: HeaderValue,
    /// The client's credentials, if the server may have them.
    pub(in crate::upstream) credentials: Option<Credentials>,
    /// The session's cookies, as another process knew them.
    pub(in crate::upstream) cookies: Vec<String>,
}

impl SessionBackground {
    fn new(services: TaskTracker, unasked: Box<dyn Unasked>) -> Self {
        Self {
            calls: Arc::default(),
            unasked,
            ending: CancellationToken::new().drop_guard(),
            services,
        }
    }

    fn end(&self) {
        self.ending.token().cancel();
    }
}

/// The data that another process needs to use a session.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::upstream) struct SessionHandover {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    version: String,
    /// Other calls use it too.
    #[serde(default)]
    pub(in crate::upstream) shared: bool,
    /// `true` if the session is a client's own.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(in crate::upstream) borrowed: bool,
    /// The cookies that the server set on the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cookies: Vec<String>,
}

impl SessionHandover {
    /// The identity of the session, if it is a client's own.
    pub(in crate::upstream) fn identity(&self, by: &UpstreamRequest) -> Option<SessionIdentity> {
        let id = self.session.as_deref().map(HeaderValue::try_from);
        Some(SessionIdentity {
            caller: by.caller,
            id: id.transpose().ok()?,
            version: HeaderValue::try_from(&*self.version).ok()?,
            credentials: by.credentials.clone(),
            cookies: self.cookies.clone(),
        })
    }
}

impl ServerSession {
    /// Returns the data that another process needs to use the session, beside the credentials of its client, which never leave
    /// this process.
    pub(in crate::upstream) fn handover(&self) -> Option<SessionHandover> {
        let session = match &self.stamp.id {
            Some(id) => Some(id.to_str().ok()?.to_owned()),
            None => None,
        };
        let version = self.stamp.version.to_str().ok()?.to_owned();
        Some(SessionHandover {
            session,
            version,
            shared: self.shared,
            borrowed: self.is_borrowed(),
            cookies: self.stamp.cookies.lines(),
        })
    }

    /// Sets whether other calls use the session, beside the call that opened it.
    pub(in crate::upstream) fn shared_by(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// Leaves the session to another process: raincheck neither closes it nor reads its stream from here on.
    pub(in crate::upstream) fn leave(&self) {
        self.left.store(true, Ordering::Release);
        self.needed.set_elsewhere(true);
        // Other calls of this process may use the session.
        if !self.shared {
            self.background.end();
        }
    }

    /// Takes the session over from another process.
    pub(in crate::upstream) fn hold(&self) {
        self.left.store(false, Ordering::Release);
        self.needed.set_elsewhere(false);
    }

    /// A session that raincheck does not close, and of which it knows nothing.
    fn new(
        origin: &Arc<Origin>,
        services: TaskTracker,
        stamp: Stamp,
        declared: Arc<str>,
        unasked: Box<dyn Unasked>,
    ) -> Self {
        Self {
            origin: Arc::clone(origin),
            stamp,
            described: None,
            log_level: Mutex::default(),
            shared: false,
            left: AtomicBool::new(true),
            declared,
            background: SessionBackground::new(services, unasked),
            needed: Needed::default(),
            doubt: Doubt::default(),
            _counted: Counted::session(),
        }
    }

    /// A session that the server began for raincheck's `initialize`.
    pub(in crate::upstream) fn begun(
        origin: &Arc<Origin>,
        services: TaskTracker,
        declared: Arc<str>,
        initialized: Initialized,
        credentials: Option<&Credentials>,
        unasked: Box<dyn Unasked>,
    ) -> Option<Self> {
        let result = Object::parse(initialized.result.get()).ok()?;
        let version = result.get("protocolVersion").and_then(string)?;
        let stamp = Stamp {
            id: initialized.session_id,
            version: HeaderValue::try_from(&*version).ok()?,
            credentials: LatestCredentials::new(credentials),
            cookies: Arc::new(initialized.cookies),
        };
        Some(Self {
            described: Some(Arc::new(Discovered::of_initialize(&result)?)),
            left: AtomicBool::new(false),
            ..Self::new(origin, services, stamp, declared, unasked)
        })
    }

    /// A session that another process opened. It is not raincheck's to close until the call is taken over.
    pub(in crate::upstream) fn carried_over(
        origin: &Arc<Origin>,
        services: TaskTracker,
        declared: Arc<str>,
        (handover, credentials): (&SessionHandover, Option<&Credentials>),
        unasked: Box<dyn Unasked>,
    ) -> Option<Self> {
        let id = handover.session.as_deref().map(HeaderValue::try_from);
        let stamp = Stamp {
            id: id.transpose().ok()?,
            version: HeaderValue::try_from(&*handover.version).ok()?,
            credentials: LatestCredentials::new(credentials),
            cookies: Arc::new(Cookies::restored(&handover.cookies, || origin.url())),
        };
        Some(Self {
            shared: handover.shared,
            ..Self::new(origin, services, stamp, declared, unasked)
        })
    }

    /// A client's own session.
    pub(in crate::upstream) fn of_client(
        origin: &Arc<Origin>,
        services: TaskTracker,
        identity: SessionIdentity,
        cookies: Arc<Cookies>,
        unasked: Box<dyn Unasked>,
    ) -> Self {
        cookies.restore(&identity.cookies, || origin.url());
        let stamp = Stamp {
            id: identity.id,
            version: identity.version,
            credentials: LatestCredentials::new(identity.credentials.as_ref()),
            cookies,
        };
        Self {
            shared: true,
            ..Self::new(origin, services, stamp, "{}".into(), unasked)
        }
    }

    /// Returns the server's description of itself, as sent when the session began. `None` if the server sent it to a
    /// client.
    pub(in crate::upstream) fn described(&self) -> Option<&Arc<Discovered>> {
        self.described.as_ref()
    }

    /// Returns `true` if the session is a client's own, which raincheck neither begins nor ends.
    pub(in crate::upstream) fn is_borrowed(&self) -> bool {
        self.background.unasked.is_a_clients()
    }

    /// The stream on which the server sends messages of its own, if it is of that type.
    pub(in crate::upstream) fn unasked<T: Unasked>(&self) -> Option<&T> {
        let unasked: &dyn Any = &*self.background.unasked;
        unasked.downcast_ref()
    }

    pub(in crate::upstream) fn version(&self) -> &HeaderValue {
        &self.stamp.version
    }

    pub(in crate::upstream) fn needed(&self) -> &Needed {
        &self.needed
    }

    /// Returns the flag that is set while the server may have lost the session.
    pub(in crate::upstream) fn doubt(&self) -> &Doubt {
        &self.doubt
    }

    /// The client has ended its session.
    pub(in crate::upstream) fn end(&self) {
        self.background.end();
    }

    /// Cancelled when the session ends.
    pub(in crate::upstream) fn ended(&self) -> CancellationToken {
        self.background.ending.token().clone()
    }

    /// The caller shows these credentials now, perhaps a renewed token.
    pub(in crate::upstream) fn renew(&self, credentials: Option<&Credentials>) {
        self.stamp.credentials.renew(credentials);
    }

    pub(in crate::upstream) fn post(&self) -> request::Builder {
        self.post_with(&ClientHeaders::default())
    }

    /// A POST with headers of the client for which it is.
    pub(in crate::upstream) fn post_with(&self, client: &ClientHeaders) -> request::Builder {
        let head = self.origin.post(self.stamp.credentials.get().as_ref());
        let head = client
            .iter()
            .fold(head, |head, (name, value)| head.header(name, value));
        self.stamp(head)
    }

    /// A request for an event stream: the session's own, or the rest of a stream after that event.
    pub(in crate::upstream) fn get(&self, after: Option<&HeaderValue>) -> request::Builder {
        let request = self.stamp(self.origin.get(self.stamp.credentials.get().as_ref()));
        match after {
            Some(event_id) => request.header(LAST_EVENT_ID, event_id),
            None => request,
        }
    }

    /// The cookies that come back on every later request of the session.
    pub(in crate::upstream) fn cookies(&self) -> &Arc<Cookies> {
        &self.stamp.cookies
    }

    pub(in crate::upstream) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Returns the capabilities that were declared to the server, as JSON.
    pub(in crate::upstream) fn declared(&self) -> &str {
        &self.declared
    }

    pub(in crate::upstream) fn calls(&self) -> &Arc<SessionCalls> {
        &self.background.calls
    }

    /// Reads the stream on which the server sends messages of its own, until the session ends. Resolves when
    /// the server has accepted the request for it, or after a moment.
    pub(in crate::upstream) async fn hear(self: &Arc<Self>) {
        self.background.unasked.hear(self).await;
    }

    /// Runs a job until the session ends.
    pub(in crate::upstream) fn accompany(
        &self,
        going_on: impl Future<Output = ()> + Send + 'static,
    ) {
        let ending = self.background.ending.token().clone();
        let services = &self.background.services;
        // Boxed, because this future has room for the job twice.
        services.spawn(ending.run_until_cancelled_owned(Box::pin(going_on)));
    }

    pub(in crate::upstream) fn has_id(&self) -> bool {
        self.stamp.id.is_some()
    }

    fn stamp(&self, builder: request::Builder) -> request::Builder {
        let mut builder = builder.header(PROTOCOL_VERSION, &self.stamp.version);
        if let Some(headers) = builder.headers_mut() {
            let first = if self.is_borrowed() {
                FirstOfName::Clients
            } else {
                FirstOfName::Sessions
            };
            self.stamp.cookies.put(headers, first, || self.origin.url());
        }
        match &self.stamp.id {
            Some(id) => builder.header(SESSION_ID, id),
            None => builder,
        }
    }

    /// Takes in the cookies of a response to a request on the session.
    pub(in crate::upstream) fn heard(&self, response: &Response<ResponseBody>) {
        let cookies = &self.stamp.cookies;
        cookies.take_in(response.headers(), || self.origin.url());
    }

    /// Posts a message that has no answer of its own, and that does no harm if it comes twice. The wait is bounded,
    /// because the caller reads other messages meanwhile.
    pub(in crate::upstream) async fn tell(&self, message: String) -> Result<(), Failure> {
        let body = RequestBody::json(message);
        let sending = async {
            let sent = self.origin.send(self.post(), body.clone()).await;
            // The server may have ended a connection that was used before.
            match sent {
                Err(failure) if failure.reason == Reason::UpstreamReset => {
                    self.origin.send(self.post(), body).await
                }
                sent => sent,
            }
        };
        let response = tokio::time::timeout(TELL, sending)
            .await
            .map_err(|_| RESET)??;
        self.heard(&response);
        if response.status().is_success() {
            self.origin.http.finish(response.into_body());
            return Ok(());
        }
        let (head, text) = refusal::read(response).await;
        Err(refusal::failure(&head, &text).with_effect(SideEffect::Unknown))
    }

    /// Sets the session's log level, if the call wants another one.
    pub(in crate::upstream) async fn set_log_level(&self, level: &Arc<str>) {
        // Cloned, because the lock must not be held while the server answers.
        let known = self.log_level.lock().clone();
        if known.as_ref() == Some(level) {
            return;
        }
        let mut params = Writer::object();
        params.str("level", level);
        let message = translate::request(&self.origin.next_id(), "logging/setLevel", &params.end());
        // A server that refuses has no logging, and so logs nothing.
        if self.tell(message).await.is_ok() {
            *self.log_level.lock() = Some(Arc::clone(level));
        }
    }

    /// Ends the session here, and soon at the server, unless it was left to another process.
    pub(in crate::upstream) fn close_soon(self: &Arc<Self>) {
        self.background.end();
        let session = Arc::clone(self);
        let closing = async move { session.close().await };
        self.background.services.spawn(closing);
    }

    /// Ends the session at the server, unless it was left to another process.
    pub(in crate::upstream) async fn close(&self) {
        self.background.end();
        // Without an id there is nothing to end. A session that was left may be in use by another process.
        if !self.has_id() || self.left.load(Ordering::Acquire) {
            return;
        }
        let request = self.stamp(self.origin.delete(self.stamp.credentials.get().as_ref()));
        let closing = self.origin.send(request, RequestBody::empty());
        // A server that does not take this forgets the session by itself.
        let _ = tokio::time::timeout(Duration::from_secs(5), closing).await;
    }
}
