//! The rounds of questions of a modern server: each round ends a leg, and the next leg brings the answers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;

use super::super::leg;
use super::super::responder::{CallAnswer, RelayedAnswer};
use super::open_round::{OpenRound, ROUNDS_MAX};
use super::results::invalid;
use super::{Audience, CallStage, Carrier, Flow, PAUSE_MS, PAUSE_MS_MAX, Timer};
use crate::base::backoff::after_ms;
use crate::mcp::error::Reason;
use crate::mcp::input;
use crate::mcp::json::raw;
use crate::store::ledger::ApplyError;
use crate::task::machine::{Effect, OwnerEvent, Rejected};
use crate::task::state::{Leg, Task};
use crate::upstream::{self, UpstreamError};

impl Carrier {
    /// A modern server ended the leg with questions.
    pub(super) async fn on_round(&mut self, asked: input::Requests) -> Flow {
        if !asked.requests.is_empty() {
            // The server has nothing of the call until the questions are answered.
            self.end_dispatch();
        }
        match self.keep_round(asked).await {
            Ok(Some(Effect::Dispatch)) => self.next_leg_later(),
            Ok(_) => self.on_round_recorded().await,
            // An earlier attempt was committed, and the store's answer was lost.
            Err(ApplyError::Rejected(Rejected::NotOwner, latest)) if self.asks(&latest.task) => {
                self.on_round_recorded().await
            }
            Err(ApplyError::Rejected(Rejected::NotOwner | Rejected::Ended, latest)) => {
                Box::pin(self.act_on(*latest)).await
            }
            // The server asked out of turn, or for more than a task may ask. No record can hold that.
            Err(ApplyError::Rejected(..)) => self.give_up(Reason::UpstreamInvalid).await,
            Err(ApplyError::Gone) => self.on_record_gone().await,
            Err(ApplyError::Store(_)) => self.give_up(Reason::StoreLost).await,
        }
    }

    /// Commits a round, and with the first round the request: who answers sends the call again. Like a result, a round
    /// exists nowhere else, so a store that is away is asked again as long as there is room in memory.
    async fn keep_round(&mut self, asked: input::Requests) -> Result<Option<Effect>, ApplyError> {
        let bytes = length(&asked);
        let round = OwnerEvent::RoundAsked {
            requests: asked.requests,
            request_state: asked.request_state,
        };
        let lacks_request = self.stage.recorded().is_some_and(|it| it.lacks_request);
        let request = lacks_request.then(|| leg::store(&self.server.outgoing));
        let request = request.transpose()?;
        let away = match self.apply_with(round.clone(), request.clone()).await {
            Err(ApplyError::Store(away)) => away,
            applied => return applied,
        };
        let runner = Arc::clone(&self.runner);
        let (Some(recorded), Some(_room)) = (self.stage.recorded(), runner.unsaved.hold(bytes))
        else {
            return Err(ApplyError::Store(away));
        };
        warn!(error = %away, "cannot store the questions of the server; trying again");
        let mut attempts = runner.attempts(recorded.task());
        let mut away = away;
        while !attempts.are_refused(&away).await && attempts.wait_for_next().await {
            match self.apply_with(round.clone(), request.clone()).await {
                Err(ApplyError::Store(still)) => away = still,
                applied => return applied,
            }
        }
        Err(ApplyError::Store(away))
    }

    /// A modern server answered a call without a record with questions, and the client answers them while it waits.
    pub(super) async fn on_client_round(&mut self, result: &RawValue) -> Flow {
        let may_ask = input::may_be_required(&self.server.outgoing.method);
        let asked = input::requests_of(result).ok().filter(|_| may_ask);
        let (Some(asked), CallStage::Plain(plain)) = (asked, &mut self.stage) else {
            self.answer(invalid());
            return Flow::Done;
        };
        let round = plain.round.insert(OpenRound::new(asked));
        if round.is_empty() {
            Arc::make_mut(&mut self.server.outgoing).retry = round.retry().map(Arc::new);
            return self.next_leg_later();
        }
        let questions = round.questions();
        // Empty rounds do not count: with them the server only asks for time, and the pauses grow.
        plain.rounds += 1;
        if plain.rounds > ROUNDS_MAX {
            self.answer(invalid());
            return Flow::Done;
        }
        // The server has nothing of the call until the questions are answered.
        self.end_dispatch();
        if let Some(client) = self.audience.client() {
            for question in questions {
                client.responder.ask(question, self.timers.deadline()).await;
            }
        }
        Flow::Continue
    }

    /// Handles an answer of the client that waits. With the last answer of the round the call is sent again.
    pub(super) async fn on_round_answered(&mut self, answered: RelayedAnswer) -> Flow {
        let RelayedAnswer { id, answer } = answered;
        let CallStage::Plain(plain) = &mut self.stage else {
            return Flow::Continue;
        };
        let Some(round) = &mut plain.round else {
            return Flow::Continue;
        };
        let (upstream::Answer::Result(text) | upstream::Answer::Refused(text)) = &answer;
        let Ok(json) = raw(text.to_string()) else {
            return Flow::Continue;
        };
        if matches!(answer, upstream::Answer::Refused(_)) {
            // A modern server takes no errors for answers.
            self.answer(CallAnswer::Error(UpstreamError::in_message(json)));
            return Flow::Done;
        }
        // Of a round that was answered before, a leg is under way.
        if round.retry().is_some() {
            return Flow::Continue;
        }
        round.keep(&id, json);
        let Some(retry) = round.retry() else {
            return Flow::Continue;
        };
        Arc::make_mut(&mut self.server.outgoing).retry = Some(Arc::new(retry));
        // The call gave up its permits while the client answered, so this leg waits for its turn again.
        self.requeue().await
    }

    /// Waits for the end of a call that became a task with open questions. The client may have answered some of them
    /// before it was notified of the task.
    pub(super) async fn on_round_in_task(&mut self) -> Flow {
        let flow = self.on_round_recorded().await;
        while let Audience::Client(client) = &mut self.audience
            && let Some(answered) = client.responder.client().1.recv().await
        {
            self.on_late_answer(answered).await;
        }
        flow
    }

    async fn on_round_recorded(&mut self) -> Flow {
        let recorded = self.stage.recorded();
        // The client may have cancelled while the store was away.
        if recorded.is_some_and(|recorded| recorded.custody.is_stopped()) {
            return self.on_stopped().await;
        }
        self.wait_for_settlement().await
    }

    /// Returns `true` if the questions in the record came from this carrier's leg.
    fn asks(&self, task: &Task) -> bool {
        let fence = self.stage.recorded().map(|recorded| recorded.fence);
        fence == Some(task.fence) && matches!(task.leg, Leg::Parked(_))
    }

    /// The server asks nothing and wants the request again later. It works on the call meanwhile, so the call
    /// keeps its permits.
    pub(super) fn next_leg_later(&mut self) -> Flow {
        self.dispatch.end_leg();
        self.empty_legs = self.empty_legs.saturating_add(1);
        let pause_ms = after_ms(self.empty_legs, PAUSE_MS, PAUSE_MS_MAX);
        let at = Instant::now() + Duration::from_millis(pause_ms);
        self.timers.arm(Timer::NextLeg, at);
        Flow::Continue
    }

    pub(super) fn next_leg(&mut self) -> Flow {
        if let Some(recorded) = self.stage.recorded() {
            let task = recorded.task();
            Arc::make_mut(&mut self.server.outgoing).retry =
                (task.round > 0).then(|| Arc::new(leg::retry(task)));
        }
        self.open();
        Flow::Continue
    }
}

fn length(asked: &input::Requests) -> usize {
    let requests = asked.requests.iter();
    let requests: usize = requests.map(|(key, it)| key.len() + it.get().len()).sum();
    requests + asked.request_state.as_deref().map_or(0, str::len)
}
