//! What a server over Streamable HTTP says of one call, to its answer: also behind a stream that broke,
//! where the server keeps its events.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::http::request::Parts;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::downstream::reply::Rpc;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Object;
use crate::upstream::channel::session::Said;
use crate::upstream::relay::{self, Answering, Relayed, ResumePoint, error_of};
use crate::upstream::wrapped::Upstream;

pub(super) type Relaying = BoxFuture<'static, Result<Relayed, Failure>>;

/// One thing that a server says.
#[derive(Debug)]
pub(super) struct Word {
    /// Nothing in what only tells where to come back to.
    pub(super) said: Option<Said>,
    /// The server's own id of it, behind which the rest can be had.
    pub(super) event_id: Option<String>,
}

impl Word {
    pub(super) const NOTHING: Self = Self {
        said: None,
        event_id: None,
    };
}

impl From<Said> for Word {
    fn from(said: Said) -> Self {
        Self {
            said: Some(said),
            event_id: None,
        }
    }
}

/// Where reading is.
pub(super) enum Stage {
    Waiting(Relaying),
    Reading(Box<Answering>),
    /// The stream ended before the answer. `lost`: what it is called if it cannot be come back to.
    Cut {
        point: ResumePoint,
        lost: Reason,
    },
    Answered,
}

/// One call, as its client asked.
pub(super) struct Words {
    pub(super) upstream: Arc<Upstream>,
    /// Of a request of the client on the call's session.
    pub(super) parts: Parts,
    pub(super) id: Box<RawValue>,
    pub(super) bytes_max: usize,
    pub(super) stage: Stage,
}

impl Words {
    /// What the server says, and an error under the client's own id where it never answers.
    pub(super) fn spoken(self) -> BoxStream<'static, Word> {
        let state = Hearing {
            words: self,
            event_id: None,
        };
        stream::unfold(state, |mut hearing| async {
            let word = hearing.next().await?;
            Some((word, hearing))
        })
        .boxed()
    }
}

struct Hearing {
    words: Words,
    /// The last that the server gave.
    event_id: Option<String>,
}

impl Hearing {
    async fn next(&mut self) -> Option<Word> {
        loop {
            match std::mem::replace(&mut self.words.stage, Stage::Answered) {
                Stage::Answered => return None,
                Stage::Reading(answering) => {
                    if let Some(word) = self.read(answering).await {
                        return Some(word);
                    }
                }
                Stage::Cut { point, lost } => {
                    let Words {
                        upstream, parts, ..
                    } = &self.words;
                    let bytes_max = self.words.bytes_max;
                    match upstream.relay_rest(parts, &point, bytes_max).await {
                        Some(rest) => {
                            self.event_id = Some(point.event_id);
                            self.words.stage = Stage::Reading(rest);
                        }
                        None => return Some(self.failed(unknown(lost))),
                    }
                }
                Stage::Waiting(relaying) => match relaying.await {
                    Ok(Relayed::Answer(answering)) => self.words.stage = Stage::Reading(answering),
                    Ok(Relayed::Passed(refusal)) => {
                        let error = error_of(refusal).await;
                        return Some(self.refused(&error));
                    }
                    Err(failure) => return Some(self.failed(failure)),
                },
            }
        }
    }

    /// `None`: reading goes on, or there is nothing to tell of.
    async fn read(&mut self, mut answering: Box<Answering>) -> Option<Word> {
        let is_stream = answering.is_stream();
        match answering.next().await {
            Ok(Some(said)) if is_stream => self.event(answering, said),
            Ok(Some(said)) => {
                self.words.upstream.finish(*answering);
                Some(self.body(said.text))
            }
            Ok(None) => {
                let Some(event_id) = self.event_id.clone() else {
                    return Some(self.failed(unknown(Reason::UpstreamReset)));
                };
                let retry = answering.retry();
                self.words.stage = Stage::Cut {
                    point: ResumePoint { event_id, retry },
                    lost: Reason::UpstreamReset,
                };
                None
            }
            Err(failure) => Some(self.failed(failure)),
        }
    }

    fn event(&mut self, answering: Box<Answering>, said: relay::Said) -> Option<Word> {
        let relay::Said { text, event_id } = said;
        if event_id.is_some() {
            self.event_id.clone_from(&event_id);
        }
        if is_answer(&text, &self.words.id) {
            self.words.upstream.finish(*answering);
            return Some(Said::Answer(text).into());
        }
        self.words.stage = Stage::Reading(answering);
        let said = (!text.is_empty()).then_some(Said::Message(text));
        let has_meaning = said.is_some() || event_id.is_some();
        has_meaning.then_some(Word { said, event_id })
    }

    /// A body is one message, and so the answer: a server that could not read the id has none in it.
    fn body(&self, text: String) -> Word {
        if is_answer(&text, &self.words.id) {
            return Said::Answer(text).into();
        }
        let body = Object::parse(&text).ok();
        let error = body.as_ref().and_then(|body| body.get("error"));
        error.map_or_else(
            || self.failed(unknown(Reason::UpstreamInvalid)),
            |error| self.refused(error),
        )
    }

    fn failed(&self, failure: Failure) -> Word {
        Said::Answer(Rpc::failure(self.words.id.get(), failure).json).into()
    }

    fn refused(&self, error: &RawValue) -> Word {
        Said::Answer(envelope::error(self.words.id.get(), error.get())).into()
    }
}

/// Whether a message is the response to the request with that id.
pub(super) fn is_answer(message: &str, id: &RawValue) -> bool {
    Object::parse(message).is_ok_and(|message| {
        !message.contains("method")
            && (message.contains("result") || message.contains("error"))
            && message.get("id").is_some_and(|other| is_same(other, id))
    })
}

/// Servers may write an id in their own way: `7` for `7.0`, a character for its escape.
fn is_same(one: &RawValue, other: &RawValue) -> bool {
    if one.get() == other.get() {
        return true;
    }
    let read = |id: &RawValue| serde_json::from_str::<Value>(id.get()).ok();
    match (read(one), read(other)) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            one.as_f64().map(f64::to_bits) == other.as_f64().map(f64::to_bits)
        }
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => false,
    }
}

fn unknown(reason: Reason) -> Failure {
    Failure::new(reason, SideEffect::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_response_to_the_request_is_its_answer() {
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let answers = [
            (r#"{"id":7,"result":{}}"#, "7", true),
            (r#"{"id":7,"error":{}}"#, "7.0", true),
            (r#"{"id":"\u0061","result":{}}"#, r#""a""#, true),
            (r#"{"id":8,"result":{}}"#, "7", false),
            (r#"{"id":"7","result":{}}"#, "7", false),
            (r#"{"id":null,"error":{}}"#, "7", false),
            (r#"{"error":{}}"#, "7", false),
            (r#"{"id":7,"method":"ping"}"#, "7", false),
            ("junk", "7", false),
        ];
        for (message, asked, expected) in answers {
            assert_eq!(is_answer(message, &id(asked)), expected, "{message}");
        }
    }
}
