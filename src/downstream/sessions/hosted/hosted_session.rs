//! A call of a legacy client to a modern server: the questions that the server ends its legs with become requests to
//! the client, and its answer becomes one of the client's revision.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::questions;
use super::session::Session;
use super::translate;
use super::watch::SessionWatch;
use crate::downstream::calls::registry::CallKind;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::calls::{AskedClient, CallSession};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::{Object, raw};
use crate::runner::responder::{CallAnswer, RelayedAnswer};
use crate::task::view_2025::question_of;
use crate::upstream::Answer;

/// The session on which a request came, and what its answer needs.
pub(super) struct HostedSession {
    session: Session,
    method: Box<str>,
    /// The edits of raincheck to the answer.
    edit: Option<AnswerEdit>,
    /// Other requests may join the call. Its record has the questions, under ids of their own.
    is_joined: bool,
    /// A question was answered with an error. That error ends the call, and is not one of the server.
    was_refused: AtomicBool,
}

impl HostedSession {
    pub(super) fn new(
        session: Session,
        method: &str,
        edit: Option<AnswerEdit>,
        is_joined: bool,
    ) -> Self {
        Self {
            session,
            method: method.into(),
            edit,
            is_joined,
            was_refused: AtomicBool::new(false),
        }
    }

    fn result(&self, id: &str, result: &str) -> Rpc {
        translate::result(&self.method, result).map_or_else(
            |_| {
                let failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
                Rpc::failure(id, failure)
            },
            |result| Rpc::result(id, &result),
        )
    }
}

impl CallSession for HostedSession {
    fn key(&self) -> Option<SessionKey> {
        Some(self.session.key)
    }

    fn kind(&self) -> CallKind {
        if self.is_joined {
            CallKind::Joined
        } else {
            CallKind::AtModernServer
        }
    }

    /// Resolves when the session was ended, here or at another replica.
    async fn ended(&self, proxy: &Arc<Proxy>) {
        let mut watch = SessionWatch::of(proxy, &self.session);
        loop {
            watch.changed().await;
            // A store that does not answer is no end of the session, and must not end the call.
            if matches!(watch.look(proxy, &self.session).await, Ok(None)) {
                return;
            }
        }
    }

    async fn ask(
        &self,
        client: &AskedClient<'_>,
        question: String,
        answers: mpsc::Sender<RelayedAnswer>,
    ) {
        let message = Object::parse(&question).unwrap_or_default();
        // Any replica takes the answer to a question of a record.
        let id = message.get_str("id");
        if self.is_joined || id.is_some_and(|id| question_of(&id).is_some()) {
            return client.relay(question, answers).await;
        }
        let question = raw(question).unwrap_or_else(|_| RawValue::NULL.to_owned());
        let message = Object::parse(question.get()).unwrap_or_default();
        let id = message.get("id").unwrap_or(RawValue::NULL);
        let answer = match questions::put(&self.session, client, &question).await {
            Ok(answer) => Answer::Result(answer.get().into()),
            Err(error) => {
                // `response` must not translate this error, because the server never sent it.
                self.was_refused.store(true, Ordering::Relaxed);
                Answer::Refused(error.get().into())
            }
        };
        // There is room for the answers to all questions that may be asked.
        let _ = answers.try_send(RelayedAnswer {
            id: id.get().into(),
            answer,
        });
    }

    async fn response(&self, id: &str, answer: CallAnswer) -> Rpc {
        let mut rpc = match answer {
            CallAnswer::Result(result) => self.result(id, &result),
            CallAnswer::Error(mut error) => {
                if !self.was_refused.load(Ordering::Relaxed) {
                    error.error = translate::error(&self.method, error.error);
                }
                Rpc::error_as_it_is(id, error)
            }
            CallAnswer::Failed(_) | CallAnswer::StoreUnavailable(_) => Rpc::answer(id, answer),
        };
        if let Some(edit) = &self.edit {
            rpc.json = edit.apply(rpc.json).await;
        }
        rpc.on_session()
    }
}
