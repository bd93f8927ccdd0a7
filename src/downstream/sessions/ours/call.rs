//! One request of a legacy client, carried to a modern server leg by leg, with the client's answers in between. A job
//! of its own runs the request, which outlives the connection that it came on.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::conversation::Conversation;
use super::translate;
use super::translated::TranslatedRequest;
use super::watch::SessionWatch;
use crate::downstream::calls::cancel::cancelled;
use crate::downstream::calls::registry::CallKind;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::outbound::send::notify;
use crate::downstream::outbound::stream::ResponseEvent;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::input;
use crate::mcp::result::{self, ResultType};
use crate::runner::pauses::Pauses;
use crate::runner::responder::{CallAnswer, Reply};
use crate::upstream::Retry;

/// Messages that wait for the client. The answer has a place of its own.
const MESSAGES_MAX: usize = 64;

/// The number of times that a server may ask within one call. A server that asks no question may want to be called
/// again for as long as the call may last.
const ROUNDS_MAX: usize = 16;

impl TranslatedRequest {
    /// Begins the request in a job of its own. The events end with the answer, or without one where the client
    /// cancels. If the receiver is dropped before, the request runs on, as legacy requests do.
    pub(super) fn begin(self) -> Result<mpsc::Receiver<ResponseEvent>, Rpc> {
        let proxy = Arc::clone(&self.proxy);
        let (key, id) = (self.session.key(), self.id.get());
        let entered = proxy.calls.enter(CallKind::AtModernServer, key, id);
        let call = entered.map_err(|why| why.answer(id))?;
        let (events, receiver) = mpsc::channel(MESSAGES_MAX + 1);
        proxy.passing.spawn(self.run(Conversation { events, call }));
        Ok(receiver)
    }

    async fn run(mut self, client: Conversation) {
        // A place in the channel for the answer, which no message can take. `None` if the client left at once.
        let answer = client.events.clone().try_reserve_owned().ok();
        self.param_headers = self.mirrored().await;
        let session = Some(self.session.key());
        let cancelled = cancelled(&self.proxy, &client.call, session, &self.id);
        let session_ended = self.session_ended();
        let legs = Box::pin(self.legs(&client));
        // Dropping the legs closes the request at the server, as if its client had hung up.
        let ended = tokio::select! {
            biased;
            () = cancelled => None,
            () = session_ended => None,
            ended = legs => Some(ended),
        };
        if let (Some(mut rpc), Some(answer)) = (ended, answer) {
            if let Some(edit) = &self.edit {
                rpc.json = edit.apply(rpc.json).await;
            }
            answer.send(ResponseEvent::Answer(rpc.on_session()));
        }
    }

    /// Runs the legs, from the first to the one with the answer.
    async fn legs(&self, client: &Conversation) -> Rpc {
        let id = self.id.get();
        let invalid = || Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
        let mut retry = None;
        let mut rounds = 0;
        let mut pauses = Pauses::default();
        loop {
            let result = match self.leg(client, retry.take()).await {
                Ok(result) => result,
                Err(rpc) => return rpc,
            };
            match result::result_type(&result) {
                Ok(ResultType::InputRequired) if self.may_be_asked() => {}
                Ok(ResultType::Complete) => {
                    return translate::result(&self.method, &result).map_or_else(
                        |_| Rpc::failure(id, invalid()),
                        |result| Rpc::result(id, &result),
                    );
                }
                Ok(ResultType::InputRequired | ResultType::Other) | Err(_) => {
                    return Rpc::failure(id, invalid());
                }
            }
            let Ok(asked) = input::requests_of(&result) else {
                return Rpc::failure(id, invalid());
            };
            let answered = if asked.requests.is_empty() {
                self.pause(pauses.longer()).await.map(|()| "{}".to_owned())
            } else if rounds < ROUNDS_MAX {
                rounds += 1;
                Box::pin(self.ask(client, &result, &asked.requests)).await
            } else {
                return Rpc::failure(id, invalid());
            };
            match answered {
                Ok(answers) => {
                    retry = Some(Retry {
                        input_responses: answers.into(),
                        request_state: asked.request_state.map(Into::into),
                    });
                }
                Err(instead) => return instead,
            }
        }
    }

    /// Waits before the server is called again, which still works on the call. The pause ends at the latest when the
    /// client's patience ends, because the next leg then makes a ticket of the call.
    async fn pause(&self, pause: Duration) -> Result<(), Rpc> {
        let now = Instant::now();
        let patience = self.patience_ends;
        let until = patience
            .filter(|until| *until > now)
            .map_or(now + pause, |until| until.min(now + pause));
        let reason = tokio::select! {
            biased;
            () = self.proxy.runner.halt().cancelled() => Reason::Shutdown,
            () = tokio::time::sleep_until(self.deadline) => Reason::Deadline,
            () = tokio::time::sleep_until(until) => return Ok(()),
        };
        let failure = Failure::new(reason, SideEffect::Unknown);
        Err(Rpc::failure(self.id.get(), failure))
    }

    /// Sends one request to the server. `Err`: the response in place of the result.
    async fn leg(
        &self,
        conversation: &Conversation,
        retry: Option<Retry>,
    ) -> Result<Box<RawValue>, Rpc> {
        let id = self.id.get();
        // An earlier leg may have had an effect.
        let is_first = retry.is_none();
        let effect_of = |leg| if is_first { leg } else { SideEffect::Unknown };
        let begun = self.proxy.runner.call(self.call(retry));
        let mut client = begun.map_err(|refused| {
            if is_first {
                return Rpc::not_begun(id, refused.reason());
            }
            Rpc::failure(id, Failure::new(refused.reason(), SideEffect::Unknown))
        })?;
        let mut is_slow = false;
        loop {
            match client.next().await {
                Some(Reply::Relay(notification)) => {
                    notify(&conversation.events, notification, &mut is_slow).await;
                }
                Some(Reply::Answer(answer)) => {
                    client.into_guard().announce();
                    return match answer {
                        CallAnswer::Result(result) => Ok(result),
                        CallAnswer::Error(mut error) => {
                            error.error = translate::error(&self.method, error.error);
                            Err(Rpc::error_as_it_is(id, error))
                        }
                        CallAnswer::Failed(failure) => {
                            let effect = effect_of(failure.effect);
                            Err(Rpc::failure(id, failure.with_effect(effect)))
                        }
                        CallAnswer::StoreUnavailable(effect) => {
                            Err(Rpc::store_lost(id, effect_of(effect)))
                        }
                    };
                }
                None => return Err(Rpc::abandoned(id)),
            }
        }
    }

    /// Resolves when the session was ended, here or at another replica.
    async fn session_ended(&self) {
        let mut watch = SessionWatch::of(&self.proxy, &self.session);
        loop {
            watch.changed().await;
            if matches!(watch.look(&self.proxy, &self.session).await, Ok(None)) {
                return;
            }
        }
    }
}
