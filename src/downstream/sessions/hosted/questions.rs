//! A modern server's questions, which become requests to a legacy client, and the client's answers, which may come to
//! any replica.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::session::Session;
use super::translate;
use crate::downstream::calls::registry::AnswerPath;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::send::send;
use crate::downstream::outbound::stream::ResponseEvent;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::calls::AskedClient;
use crate::downstream::sessions::mailbox::Mailboxes;
use crate::mcp::envelope;
use crate::mcp::error::RpcError;
use crate::mcp::input::{self, InputKind};
use crate::mcp::json::{Object, Writer, quote, raw};
use crate::runner::value_watch::ValueWatch;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::quota::{Allowance, OverQuota, Quotas};

/// Begins the id of every question of raincheck's.
const PREFIX: &str = "raincheck/";

/// The pause before a question is put again on a GET stream that had too many unread messages.
const PUSHED_AGAIN: Duration = Duration::from_secs(1);

/// The time that an answer waits for the replica that asked.
const ANSWER_LIFETIME_MS: u64 = 10 * 60 * 1000;

/// The bounds of the answers that one caller, and all, may have in the store at one time.
pub fn quotas() -> Quotas {
    let most = |bytes| Allowance {
        bytes,
        ..Allowance::ANY
    };
    Quotas::new(most(64 * 1024 * 1024), most(256 * 1024 * 1024))
}

/// The answer to an elicitation that the user did not answer.
const CANCELLED: &str = r#"{"action":"cancel"}"#;

/// Puts a question, a JSON-RPC request, to the client, and returns the result for the server. `Err`: the error that
/// ends the call, because the question cannot be answered.
///
/// Dropped before it resolves, the client is notified that the question needs no answer any more.
pub(super) async fn put(
    session: &Session,
    client: &AskedClient<'_>,
    request: &RawValue,
) -> Result<Box<RawValue>, Box<RawValue>> {
    let object = Object::parse(request.get()).unwrap_or_default();
    let method = object.get_str("method").unwrap_or_default();
    let Some(kind) = InputKind::of(&method) else {
        let message = "The server asks for what no client of this session can give";
        return Err(RpcError::internal(message).to_raw());
    };
    // MCP forbids a question that the client did not declare support for, so no client gets it.
    if !input::is_declared(request, session.entry.capabilities.get()) {
        return no_answer(kind);
    }
    let proxy = client.proxy;
    let number = Uuid::new_v4().simple().to_string();
    let id = name(proxy, session, &number);
    // Before the client is asked: an answer to another replica must not be missed.
    let value = session.kv_name(Kind::Answer, &["answer", &id]);
    let elsewhere = proxy.runner.watch_value(value);
    let (sender, answered) = oneshot::channel();
    client.entry.asks(&quote(&id), AnswerPath::Session(sender));
    let version = &session.entry.version;
    let question = translate::question(&id, &number, version, &method, object.get("params"));
    // A client that left the stream of the call may still read the session's GET stream.
    let is_said = client.reads_events && send(client.messages, question.clone()).await;
    let mut open = OpenQuestion {
        mailboxes: &proxy.mailboxes,
        key: session.key,
        said: client.messages,
        id: &id,
        question,
        pushed_on: None,
    };
    if !is_said && !open.push() {
        // No stream has the question, so no notification about its end is needed.
        open.settle();
        return no_answer(kind);
    }
    let waiting = wait(proxy, &elsewhere, value, &mut open, answered);
    let Ok(answer) = tokio::time::timeout(client.patience, waiting).await else {
        // Not settled: the user may still see the question, and the drop of `open` notifies the client.
        return no_answer(kind);
    };
    open.settle();
    let text = std::str::from_utf8(&answer).unwrap_or_default();
    let message = Object::parse(text).unwrap_or_default();
    match (message.get("result"), message.get("error")) {
        (Some(result), _) if input::answers(request, result) => Ok(result.to_owned()),
        // The client's own error for an unknown method would look like the error of the call.
        (None, Some(error)) if kind != InputKind::Elicitation && !input::cannot_be_asked(error) => {
            Err(error.to_owned())
        }
        _ => no_answer(kind),
    }
}

/// A question that the client may be showing to its user. Dropped, it notifies the client that the answer is no
/// longer needed.
struct OpenQuestion<'a> {
    mailboxes: &'a Mailboxes,
    key: SessionKey,
    said: &'a mpsc::Sender<ResponseEvent>,
    id: &'a str,
    question: String,
    /// The number of the GET stream that has the question, if one has.
    pushed_on: Option<u64>,
}

impl OpenQuestion<'_> {
    /// Puts the question on the session's GET stream, unless that stream has it. False if no stream is open.
    fn push(&mut self) -> bool {
        let stream = self.mailboxes.stream(self.key);
        if stream.is_none() || stream == self.pushed_on {
            return stream.is_some();
        }
        let is_pushed = self.mailboxes.push(self.key, self.question.clone());
        if is_pushed {
            self.pushed_on = stream;
        }
        is_pushed
    }

    /// Puts the question on each newer GET stream, because the stream that has the question may be dead, and on the
    /// open GET stream once the client has left the stream of the call.
    async fn follow_client(&mut self) -> Infallible {
        let (mut opened, said) = (self.mailboxes.opened(), self.said);
        loop {
            let is_due = self.pushed_on.is_some() || said.is_closed();
            let is_full = is_due && !self.push() && self.mailboxes.is_open(self.key);
            tokio::select! {
                _ = opened.changed() => {}
                // A closed channel resolves at once. Without the condition this loop would spin.
                () = said.closed(), if !said.is_closed() => {}
                () = tokio::time::sleep(PUSHED_AGAIN), if is_full => {}
            }
        }
    }

    /// Notes that the client need not be notified of the end of the question.
    fn settle(mut self) {
        self.question.clear();
    }
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if self.question.is_empty() {
            return;
        }
        let mut params = Writer::object();
        params
            .str("requestId", self.id)
            .str("reason", "No answer came in time");
        let cancelled = envelope::notification("notifications/cancelled", &params.end());
        // A drop cannot wait for room, so the GET stream is the second and last chance.
        if let Err(unsaid) = self.said.try_send(ResponseEvent::Message(cancelled))
            && let ResponseEvent::Message(cancelled) = unsaid.into_inner()
        {
            self.mailboxes.push(self.key, cancelled);
        }
    }
}

/// Returns the answer for the server if the client gave none. Only an elicitation has an answer for that case.
fn no_answer(kind: InputKind) -> Result<Box<RawValue>, Box<RawValue>> {
    match kind {
        InputKind::Elicitation => raw(CANCELLED.to_owned())
            .map_err(|_| RpcError::internal("The client did not answer").to_raw()),
        InputKind::Sampling | InputKind::Roots => {
            Err(RpcError::cannot_ask(kind.capability()).to_raw())
        }
    }
}

/// Returns the id of a question. It is sealed, so that every replica can verify that the question was asked on this
/// session.
fn name(proxy: &Arc<Proxy>, session: &Session, number: &str) -> String {
    let seal = proxy.callers.seal(&["question", &session.id, number]);
    format!("{PREFIX}{number}.{seal}")
}

/// Waits for the answer, which may come to any replica.
async fn wait(
    proxy: &Arc<Proxy>,
    elsewhere: &ValueWatch,
    value: Name,
    open: &mut OpenQuestion<'_>,
    answered: oneshot::Receiver<Bytes>,
) -> Bytes {
    let here = async {
        match answered.await {
            Ok(answer) => answer,
            // The answer may still come to another replica.
            Err(_) => std::future::pending().await,
        }
    };
    let elsewhere = async {
        loop {
            if let Some(answer) = elsewhere.told().await {
                // A value that stays expires after ten minutes, and no call reads it again.
                let _ = proxy.kv.remove(value).await;
                return answer;
            }
        }
    };
    tokio::select! {
        // The first answer counts, and a second one goes the other way.
        biased;
        answer = here => answer,
        answer = elsewhere => answer,
        never = open.follow_client() => match never {},
    }
}

/// Takes the client's answer to a question of any replica. Everything else is dropped. An answer for which the caller has no
/// room is refused as by a full store.
pub(super) async fn answer(
    proxy: &Arc<Proxy>,
    session: &Session,
    id: &RawValue,
    text: Bytes,
) -> Result<(), StoreError> {
    let asked = id;
    let id = crate::mcp::json::string(asked).unwrap_or_default();
    let number = id.strip_prefix(PREFIX).and_then(|id| id.split_once('.'));
    // An answer to a question that was never asked is not stored.
    let is_asked = number.is_some_and(|(number, _)| *id == *name(proxy, session, number));
    if !is_asked {
        return Ok(());
    }
    let text = match proxy.calls.take_question(session.key, asked) {
        Some((_, AnswerPath::Session(waiting))) => match waiting.send(text) {
            Ok(()) => return Ok(()),
            Err(text) => text,
        },
        Some((_, AnswerPath::Carrier(_))) | None => text,
    };
    let now_ms = proxy.runner.ledger().now_ms();
    let expires_ms = now_ms.saturating_add(ANSWER_LIFETIME_MS);
    let entered = proxy
        .answers
        .enter(session.caller, text.len(), expires_ms, now_ms);
    entered.map_err(|OverQuota| StoreError::Full)?;
    let value = session.kv_name(Kind::Answer, &["answer", &id]);
    // The first answer counts.
    let lifetime = Duration::from_millis(ANSWER_LIFETIME_MS);
    proxy.kv.claim(value, text, lifetime).await?;
    // Announced after it is stored, because the replica that waits reads the value at once.
    proxy.kv.tell(value).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elicitation_without_an_answer_is_cancelled() {
        assert_eq!(no_answer(InputKind::Elicitation).unwrap().get(), CANCELLED);
        assert!(no_answer(InputKind::Roots).is_err());
    }
}
