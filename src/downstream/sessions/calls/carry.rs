//! Carries the call of a legacy client: a job follows the call for the client, whatever becomes of the client's
//! connection. The client may wait, go away and come back, or cancel the call by its id.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::downstream::body::Body;
use crate::downstream::calls::cancel::cancelled;
use crate::downstream::calls::registry::{AnswerPath, CallEntry, CallKind, EnterError};
use crate::downstream::inbound::idempotency::{digest, is_all_of_call};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::outbound::send::notify;
use crate::downstream::outbound::stream::ResponseEvent;
use crate::downstream::proxy::Proxy;
use crate::downstream::{calls::resumable, claims, outbound::patience};
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::runner::CallSpec;
use crate::runner::claim::ClaimError;
use crate::runner::client_note::{ClientNote, Leaving};
use crate::runner::responder::{CallAnswer, CallSubscriber, RelayedAnswer, Reply};
use crate::task::policy::Rule;

/// Messages that wait for a slow client. The answer has a place of its own.
const MESSAGES_MAX: usize = 64;

/// The legacy session of a call that is carried: how its client is asked, and the form of the answer.
pub(in crate::downstream) trait CallSession: Send + Sync + 'static {
    /// The key under which the call is registered. `None`: no cancel and no answer can name the call.
    fn key(&self) -> Option<SessionKey>;

    /// The kind under which the call is registered.
    fn kind(&self) -> CallKind;

    /// Resolves when the session has ended.
    fn ended(&self, proxy: &Arc<Proxy>) -> impl Future<Output = ()> + Send;

    /// Puts a JSON-RPC request of the server to the client. Its answer goes to `answers`, now or later.
    ///
    /// Dropped, the question needs no answer any more.
    fn ask(
        &self,
        client: &AskedClient<'_>,
        question: String,
        answers: mpsc::Sender<RelayedAnswer>,
    ) -> impl Future<Output = ()> + Send;

    /// Makes the response to the request with that id.
    fn response(&self, id: &str, answer: CallAnswer) -> impl Future<Output = Rpc> + Send;
}

/// The client of a running call, as a question finds it.
pub(in crate::downstream) struct AskedClient<'a> {
    pub(in crate::downstream) proxy: &'a Arc<Proxy>,
    pub(in crate::downstream) entry: &'a CallEntry,
    /// The messages on the connection of the call.
    pub(in crate::downstream) messages: &'a mpsc::Sender<ResponseEvent>,
    /// The client reads event streams, and so more than the answer.
    pub(in crate::downstream) reads_events: bool,
    /// The longest time that an answer may take.
    pub(in crate::downstream) patience: Duration,
}

impl AskedClient<'_> {
    /// Passes a question on as it is. Waits long for a client that does not read.
    pub(in crate::downstream) async fn relay(
        &self,
        question: String,
        answers: mpsc::Sender<RelayedAnswer>,
    ) {
        let message = Object::parse(&question).unwrap_or_default();
        if let Some(id) = message.get("id").filter(|_| self.reads_events) {
            self.entry.asks(id.get(), AnswerPath::Carrier(answers));
        }
        let sending = self.messages.send(ResponseEvent::Message(question));
        // The follower of the call notices a client that went away.
        let _ = timeout(self.patience, sending).await;
    }
}

/// Begins the call, as soon as it is made, and responds to its request. The client can cancel it before.
pub(in crate::downstream) async fn carry<S: CallSession>(
    proxy: &Arc<Proxy>,
    (by, headers, request): (&Requester, &HeaderMap, &Request<'_>),
    session: S,
    call: impl Future<Output = CallSpec> + Send + 'static,
) -> Response<Body> {
    let kind = session.kind();
    // A call without a session cannot be named by a message, but it counts in the bound of all calls.
    let key = session.key().unwrap_or_else(SessionKey::unnamed);
    let refused = |why: EnterError| why.answer(request.id.get()).on_session().into_response();
    let entry = match proxy.calls.enter(kind, key, request.id.get()) {
        Ok(entry) => entry,
        Err(why) => return refused(why),
    };
    // Without a session, the same call of this client cannot be told from that of another client.
    let note = by.note.clone().unwrap_or_default();
    if request.method == "tools/call" && session.key().is_some() {
        let joined_by = is_all_of_call(&request.params).then(|| note.clone());
        if !entry.is_call(digest(request), joined_by) && kind != CallKind::Joined {
            return refused(EnterError::SameId);
        }
    }
    let (messages, said) = mpsc::channel(MESSAGES_MAX + 1);
    let client = CallingClient {
        id: request.id.to_owned(),
        session,
        answer: messages.clone().try_reserve_owned().ok(),
        messages,
        reads_events: by.reads_events,
        runs_on: kind != CallKind::Joined,
    };
    let (begins, begun) = oneshot::channel();
    let job = begin(Arc::clone(proxy), (call, note), entry, client, begins);
    // A job, because this handler is dropped with the connection, and the call outlives the connection.
    proxy.passing.spawn(job);
    match begun.await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            let refused = claims::refused(request.id, &why);
            return refused.on_session().into_response();
        }
        Err(_) => return Rpc::abandoned(request.id.get()).into_response(),
    }
    let waiting = resumable::Waiting::of(by, headers, request).carried();
    resumable::respond(proxy, by, waiting, said, patience::LEGACY).await
}

/// Returns the longest time that an answer to a question may take.
fn question_patience(rule: &Rule) -> Duration {
    Duration::from_millis(rule.input_timeout_ms.unwrap_or(rule.max_duration_ms))
}

/// Begins the call and follows it to its end. The call goes on if the client goes away before the call has begun.
async fn begin<S: CallSession>(
    proxy: Arc<Proxy>,
    (call, note): (impl Future<Output = CallSpec>, ClientNote),
    entry: CallEntry,
    mut client: CallingClient<S>,
    begun: oneshot::Sender<Result<(), ClaimError>>,
) {
    let answer = client.answer.take();
    let unwanted = async {
        tokio::select! {
            how = cancelled(&proxy, &entry, client.session.key(), &client.id) => how,
            () = client.session.ended(&proxy) => Leaving::Cancelled,
        }
    };
    tokio::pin!(unwanted);
    let mut call = tokio::select! {
        // Biased, so that a call that was cancelled while it was made does not begin.
        biased;
        _ = &mut unwanted => {
            // The response ends without an answer.
            let _ = begun.send(Ok(()));
            return;
        }
        call = call => call,
    };
    call.client.note = Some(note.clone());
    let patience = question_patience(&call.terms.rule);
    let subscriber = match claims::begin(&proxy, call).await {
        Ok(subscriber) => subscriber,
        Err(why) => {
            // Left before the client gets the answer, because the client may then use the id again.
            entry.leave();
            let _ = begun.send(Err(why));
            return;
        }
    };
    // A failure means that the handler is gone with its connection. `follow` decides if that ends the call.
    let _ = begun.send(Ok(()));
    let asked = AskedClient {
        proxy: &proxy,
        entry: &entry,
        messages: &client.messages,
        reads_events: client.reads_events,
        patience,
    };
    let answers = subscriber.answers();
    let mut following = Box::pin(client.follow(&asked, subscriber));
    let ended = tokio::select! {
        biased;
        how = unwanted => {
            // Before the subscriber is dropped, which shows the carrier that the client is gone.
            note.leaves(how);
            drop(following);
            if how == Leaving::GaveUp {
                // The call stays in the registry until the carrier keeps it: the same call waits for that.
                answers.closed().await;
            }
            None
        }
        ended = &mut following => ended,
    };
    if let Some((answered, subscriber)) = ended {
        let id = client.id.get();
        let rpc = match answered {
            Some(answered) => client.session.response(id, answered).await,
            None => Rpc::abandoned(id),
        };
        // Before the client reads it, because it may then use the id again.
        entry.leave();
        if let Some(room) = answer {
            // The reserved place: a client that does not read never delays the end of its call.
            room.send(ResponseEvent::Answer(rpc));
        }
        // A guard that is dropped without this counts as a client that left before its answer.
        subscriber.into_guard().announce();
    }
}

/// The client of a carried call.
struct CallingClient<S> {
    id: Box<RawValue>,
    session: S,
    messages: mpsc::Sender<ResponseEvent>,
    reads_events: bool,
    /// The call goes on when its connection closes, as legacy clients expect. For a call that others may join, the
    /// runner decides.
    runs_on: bool,
    /// A place in the channel for the answer, which no message can take.
    answer: Option<mpsc::OwnedPermit<ResponseEvent>>,
}

impl<S: CallSession> CallingClient<S> {
    /// Resolves when the client has left for good. A client whose call goes on without a connection never has.
    async fn left(&self) {
        if self.runs_on {
            std::future::pending::<()>().await;
        } else {
            self.messages.closed().await;
        }
    }

    /// Passes the call's messages to the client, and returns the answer. `None` in place of the answer: the call
    /// ended without one. `None`: the client has left.
    async fn follow(
        &self,
        asked: &AskedClient<'_>,
        mut subscriber: CallSubscriber,
    ) -> Option<(Option<CallAnswer>, CallSubscriber)> {
        let mut asking = FuturesUnordered::new();
        let mut is_slow = false;
        loop {
            let reply = tokio::select! {
                biased;
                // First, so that a question is on its way before the messages that came after it, and an answer before
                // the end of the call.
                Some(()) = asking.next() => continue,
                reply = subscriber.next() => reply,
                () = self.left() => return None,
            };
            match reply {
                // A message with an id is a question.
                Some(Reply::Relay(message)) if has_id(&message) => {
                    asking.push(self.session.ask(asked, message, subscriber.answers()));
                }
                Some(Reply::Relay(message)) => {
                    tokio::select! {
                        () = notify(&self.messages, message, &mut is_slow) => {}
                        () = self.left() => return None,
                    }
                }
                Some(Reply::Answer(answer)) => {
                    // Open questions end here: the client gets a notification that they need no answer any more.
                    drop(asking);
                    return Some((Some(answer), subscriber));
                }
                None => return Some((None, subscriber)),
            }
        }
    }
}

fn has_id(message: &str) -> bool {
    Object::parse(message).is_ok_and(|message| message.contains("id"))
}
