//! A modern server's questions, put to a legacy client as requests, and its answers, which may come
//! to any replica.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::asked::Asked;
use super::conversation::Conversation;
use super::session::Session;
use super::words;
use crate::downstream::calls::registry::AnswerPath;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::legacy::pushes::Pushes;
use crate::downstream::outbound::send::send;
use crate::downstream::outbound::stream::ResponseEvent;
use crate::downstream::proxy::Shared;
use crate::lock::Mutex;
use crate::mcp::envelope;
use crate::mcp::error::RpcError;
use crate::mcp::input::{self, Kind};
use crate::mcp::json::{Object, Writer, quote, raw};
use crate::store::StoreError;
use crate::store::kv::Kind as Note;

/// What the ids of our requests begin with, and no other's.
const PREFIX: &str = "raincheck/";

/// Between looks whether another replica has the answer.
const LOOK: Duration = Duration::from_secs(1);

/// How long an answer waits for the replica that asked.
const ANSWER_LIFETIME: Duration = Duration::from_mins(10);

/// A larger answer is none.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The user did not say anything.
const CANCELLED: &str = r#"{"action":"cancel"}"#;

/// There is no answer that the server could be given: the error that ends the call.
#[derive(Debug)]
pub(super) struct Unanswered(pub(super) Box<RawValue>);

impl Unanswered {
    fn with(message: &'static str) -> Self {
        Self(RpcError::internal(message).to_raw())
    }
}

/// What the client has answered of one round, by the server's names for the questions; others may be open.
#[derive(Debug, Default)]
pub(super) struct Given(Mutex<Answers>);

pub(super) type Answers = BTreeMap<Box<str>, Box<RawValue>>;

impl Given {
    fn keep(&self, key: &str, answer: &RawValue) {
        let mut answers = self.0.lock();
        answers.insert(key.into(), answer.to_owned());
    }

    pub(super) fn into_answers(self) -> Answers {
        self.0.into_inner()
    }
}

/// Puts all of them at once; `inputResponses` when all are answered. Dropped before, nobody waits for
/// the answers, and those that were `given` are there.
pub(super) async fn put(
    asked: &Asked,
    client: &Conversation,
    requests: &[(Box<str>, Box<RawValue>)],
    given: &Given,
) -> Result<String, Unanswered> {
    let putting = requests
        .iter()
        .map(|(key, request)| put_one(asked, client, (key, request), given));
    let answers = try_join_all(putting).await?;
    let mut out = Writer::object();
    for ((key, _), answer) in requests.iter().zip(answers) {
        out.raw(key, answer.get());
    }
    Ok(out.end())
}

async fn put_one(
    asked: &Asked,
    client: &Conversation,
    (key, request): (&str, &RawValue),
    given: &Given,
) -> Result<Box<RawValue>, Unanswered> {
    let object = Object::parse(request.get()).unwrap_or_default();
    let method = object.get_str("method").unwrap_or_default();
    let Some(kind) = Kind::of(&method) else {
        return Err(Unanswered::with(
            "The server asks for what no client of this session can give",
        ));
    };
    if !input::is_declared(request, asked.session.entry.capabilities.get()) {
        return no_answer(kind);
    }
    let (front, session) = (&asked.front, &asked.session);
    let number = Uuid::new_v4().simple().to_string();
    let id = name(front, session, &number);
    let (sender, answered) = oneshot::channel();
    client.call.asks(&quote(&id), AnswerPath::Session(sender));
    let version = &session.entry.version;
    let question = words::question(&id, &number, version, &method, object.get("params"));
    // A client that left its stream may still read the session's.
    let is_said = asked.by.reads_events && send(&client.events, question.clone()).await;
    let mut open = Open {
        pushes: &front.pushes,
        key: session.key(),
        said: &client.events,
        id: &id,
        question,
        pushed_on: None,
    };
    if !is_said && !open.push() {
        open.settle();
        return no_answer(kind);
    }
    let patience = asked.rule.input_timeout_ms;
    let patience = Duration::from_millis(patience.unwrap_or(asked.rule.max_duration_ms));
    let waited = tokio::time::timeout(patience, wait(front, session, &mut open, answered)).await;
    let Ok(answer) = waited else {
        return no_answer(kind);
    };
    open.settle();
    let text = std::str::from_utf8(&answer).unwrap_or_default();
    let message = Object::parse(text).unwrap_or_default();
    let answer = match (message.get("result"), message.get("error")) {
        (Some(result), _) if input::answers(request, result) => result.to_owned(),
        (None, Some(error)) if kind != Kind::Elicitation => {
            // Its own word for a method that it has not would be taken for the call's.
            if input::cannot_be_asked(error) {
                return no_answer(kind);
            }
            return Err(Unanswered(error.to_owned()));
        }
        _ => no_answer(kind)?,
    };
    given.keep(key, &answer);
    Ok(answer)
}

/// A question that the client may be showing to its user. Dropped, the client hears that nobody waits
/// for the answer any more.
struct Open<'a> {
    pushes: &'a Pushes,
    key: SessionKey,
    said: &'a mpsc::Sender<ResponseEvent>,
    id: &'a str,
    question: String,
    /// The session's stream that it is on, where it is on one.
    pushed_on: Option<u64>,
}

impl Open<'_> {
    /// Puts it on the session's stream, unless it is there. False where there is none.
    fn push(&mut self) -> bool {
        let stream = self.pushes.stream(self.key);
        if stream.is_none() || stream == self.pushed_on {
            return stream.is_some();
        }
        let is_pushed = self.pushes.push(self.key, self.question.clone());
        if is_pushed {
            self.pushed_on = stream;
        }
        is_pushed
    }

    /// A stream that it was put on may be dead, and its client listen on another.
    fn push_again(&mut self) {
        if self.pushed_on.is_some() || self.said.is_closed() {
            self.push();
        }
    }

    /// Nobody has to hear any more that it is.
    fn settle(mut self) {
        self.question.clear();
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.question.is_empty() {
            return;
        }
        let mut params = Writer::object();
        params
            .str("requestId", self.id)
            .str("reason", "No answer came in time");
        let cancelled = envelope::notification("notifications/cancelled", &params.end());
        if let Err(unsaid) = self.said.try_send(ResponseEvent::Message(cancelled))
            && let ResponseEvent::Message(cancelled) = unsaid.into_inner()
        {
            self.pushes.push(self.key, cancelled);
        }
    }
}

/// What the server is told where the client has nothing to say: of three ways to answer an
/// elicitation one says so, and the others have none.
fn no_answer(kind: Kind) -> Result<Box<RawValue>, Unanswered> {
    match kind {
        Kind::Elicitation => {
            raw(CANCELLED.to_owned()).map_err(|_| Unanswered::with("The client did not answer"))
        }
        Kind::Sampling | Kind::Roots => {
            let error = RpcError::cannot_ask(kind.capability());
            Err(Unanswered(error.to_raw()))
        }
    }
}

/// The id of a question: that it was asked on this session every replica can tell.
fn name(front: &Shared, session: &Session, number: &str) -> String {
    let seal = front.callers.seal(&["question", &session.id, number]);
    format!("{PREFIX}{number}.{seal}")
}

/// The answer, whichever replica it came to.
async fn wait(
    front: &Shared,
    session: &Session,
    open: &mut Open<'_>,
    mut answered: oneshot::Receiver<Bytes>,
) -> Bytes {
    let note = session.note(Note::Answer, &["answer", open.id]);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look.tick().await;
    let mut may_come_here = true;
    loop {
        tokio::select! {
            answer = &mut answered, if may_come_here => match answer {
                Ok(answer) => return answer,
                Err(_) => may_come_here = false,
            },
            _ = look.tick() => {
                open.push_again();
                // A store that is away is asked again.
                if let Ok(Some(answer)) = front.notes.find(note).await {
                    let _ = front.notes.remove(note).await;
                    return answer;
                }
            }
        }
    }
}

/// The client answers a question of some replica's. What is no such answer is nobody's.
pub(super) async fn answer(
    front: &Shared,
    session: &Session,
    id: &RawValue,
    text: Bytes,
) -> Result<(), StoreError> {
    let asked = id;
    let id = crate::mcp::json::string(asked).unwrap_or_default();
    let number = id.strip_prefix(PREFIX).and_then(|id| id.split_once('.'));
    // What nobody asked leaves nothing in the store.
    let is_asked = number.is_some_and(|(number, _)| *id == *name(front, session, number));
    if !is_asked || text.len() > ANSWER_BYTES_MAX {
        return Ok(());
    }
    let text = match front.calls.take_question(session.key(), asked) {
        Some((_, AnswerPath::Session(waiting))) => match waiting.send(text) {
            Ok(()) => return Ok(()),
            Err(text) => text,
        },
        Some((_, AnswerPath::Carrier(_))) | None => text,
    };
    let note = session.note(Note::Answer, &["answer", &id]);
    // The first answer counts.
    let claimed = front.notes.claim(note, text, ANSWER_LIFETIME).await;
    claimed.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elicitation_without_an_answer_is_cancelled() {
        assert_eq!(no_answer(Kind::Elicitation).unwrap().get(), CANCELLED);
        assert!(no_answer(Kind::Roots).is_err());
    }
}
