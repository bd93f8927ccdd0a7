//! Clients that wait for a call which has a record: the one that made it, those that came with the
//! same call again, those that came back with answers; whichever replica carries it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;

use super::call::Announce;
use super::request_state::input_required;
use super::seat::{self, Answer, Client, Seat};
use super::state::Runner;
use super::terms::Terms;
use super::watch::Watch;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::json::Writer;
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::store::kv::{Kind, Name};
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::id::TaskId;
use crate::task::machine::{CancelReason, Event};
use crate::task::policy::InputWhen;
use crate::task::state::{Outcome, Payload, Progress, WhenLeft};
use crate::task::view_2025;
use crate::upstream::UpstreamError;

/// A record that could not be read is read again after so long.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Notes are forgotten by the store's clock, which is not quite ours.
const SLACK: Duration = Duration::from_millis(250);

/// Follows a record for one client.
struct Attendant {
    runner: Arc<Runner>,
    loaded: Loaded,
    /// Since before the record was read: no change is missed.
    watch: Watch,
    terms: Terms,
    announce_at: Option<Instant>,
    /// The progress that the client was told last.
    told: Option<Progress>,
    /// The questions that were put to the client, by their keys.
    put: BTreeSet<Box<str>>,
    /// When to say next that somebody waits.
    sign_at: Option<Instant>,
}

impl Runner {
    /// Has a client wait for what becomes of the call.
    pub(super) fn follow(self: &Arc<Self>, loaded: Loaded, watch: Watch, terms: Terms) -> Client {
        let (seat, client) = seat::seat();
        let now = Instant::now();
        let is_first = terms.unauthorized.is_some();
        let mut attendant = Attendant {
            runner: Arc::clone(self),
            watch,
            announce_at: terms.announce.as_ref().map(|(after, _)| now + *after),
            terms,
            told: None,
            put: BTreeSet::new(),
            // Whoever made the call is not asked for before it has gone.
            sign_at: pause(&loaded).map(|pause| if is_first { now + pause } else { now }),
            loaded,
        };
        let halt = self.halt.clone();
        self.calls.spawn(async move {
            let answer = tokio::select! {
                biased;
                () = halt.cancelled() => {
                    // Another replica may run it yet.
                    Some(Answer::Failed(Failure::new(Reason::Shutdown, SideEffect::Unknown)))
                }
                () = seat.gone() => None,
                answer = attendant.answer(&seat) => Some(answer),
            };
            if let Some(answer) = answer {
                seat.answer(answer);
                if halt.is_cancelled() || seat.settled().await {
                    return;
                }
            }
            attendant.leave().await;
        });
        client
    }

    /// Ends a call whose client went away, unless somebody waits for it by then, here or elsewhere.
    pub(super) fn linger(self: &Arc<Self>, id: TaskId, window: Duration) {
        let Ok(place) = Arc::clone(&self.lingering).try_acquire_owned() else {
            return;
        };
        let runner = Arc::clone(self);
        self.services.spawn(async move {
            let ending = async {
                tokio::time::sleep(window + SLACK).await;
                // Whoever waits now comes by here, too.
                if let Ok(None) = runner.notes.find(attendance(id)).await
                    && let Ok(Some(loaded)) = runner.ledger.load(id).await
                    && !loaded.task.announced
                {
                    runner.disconnect(&loaded).await;
                }
            };
            runner.draining.run_until_cancelled(ending).await;
            drop(place);
        });
    }

    async fn disconnect(&self, loaded: &Loaded) {
        let event = Event::Cancel {
            reason: Some(CancelReason::Disconnect),
        };
        // Found again by its deadline.
        let _ = self.ledger.apply(loaded, event).await;
    }
}

impl Attendant {
    /// Waits for the call's end, for its next question, or until it is a task that the client may
    /// hear of.
    async fn answer(&mut self, seat: &Seat) -> Answer {
        let mut look_again = None;
        loop {
            if let Some(answer) = self.so_far().await {
                return answer;
            }
            self.relay(seat).await;
            self.ask(seat).await;
            tokio::select! {
                biased;
                error = unauthorized(&mut self.terms.unauthorized) => return Answer::Error(error),
                _ = self.watch.changed() => {}
                () = at(look_again) => {}
                () = at(self.announce_at) => continue,
                () = at(self.sign_at) => {
                    self.sign().await;
                    continue;
                }
            }
            look_again = None;
            match self.runner.ledger.load(self.loaded.task.id).await {
                Ok(Some(loaded)) => self.loaded = loaded,
                Ok(None) => return Answer::Failed(self.loaded.task.failure(Reason::StoreLost)),
                // The mark is gone, the change is not.
                Err(_) if self.is_due() => return self.store_unavailable(),
                Err(_) => look_again = Some(Instant::now() + LOOK_AGAIN),
            }
        }
    }

    /// What can be said as the record stands.
    async fn so_far(&mut self) -> Option<Answer> {
        // Said before the record ends, and more than the record says.
        if let Some(waiting) = &mut self.terms.unauthorized {
            match waiting.try_recv() {
                Ok(error) => return Some(Answer::Error(error)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => self.terms.unauthorized = None,
            }
        }
        let announce = self.terms.announce.as_ref().map(|(_, announce)| announce);
        // What there is to wait for is better than a ticket.
        if let Some(announce @ Announce::Task) = announce
            && self.loaded.task.announced
        {
            return Some(self.task(announce));
        }
        if let Some(outcome) = &self.loaded.task.outcome {
            return Some(self.end(outcome).await);
        }
        let asks =
            self.terms.face == Era::Modern && self.loaded.task.open_questions().next().is_some();
        if asks && self.terms.input == InputWhen::BeforeTask {
            return Some(answer_of(input_required(&self.loaded.task)));
        }
        let is_time = self.announce_at.is_some_and(|at| at <= Instant::now());
        match announce.filter(|_| asks || is_time).cloned() {
            Some(announce) => self.announce(&announce).await,
            None => None,
        }
    }

    async fn announce(&mut self, announce: &Announce) -> Option<Answer> {
        match self
            .runner
            .ledger
            .apply(&self.loaded, Event::Announced)
            .await
        {
            Ok((loaded, _)) => self.loaded = loaded,
            // Announced to somebody else, or just ended.
            Err(NotApplied::Rejected(_, stands)) => {
                self.loaded = *stands;
                if let Some(outcome) = &self.loaded.task.outcome
                    && !self.loaded.task.announced
                {
                    return Some(self.end(outcome).await);
                }
            }
            Err(NotApplied::Gone) => {
                return Some(Answer::Failed(self.loaded.task.failure(Reason::StoreLost)));
            }
            // It runs already, and stays held on this connection until the store is back.
            Err(NotApplied::Store(_)) => {
                self.announce_at = Some(Instant::now() + LOOK_AGAIN);
                return None;
            }
        }
        Some(self.task(announce))
    }

    fn task(&self, announce: &Announce) -> Answer {
        let now_ms = self.runner.ledger.now_ms();
        answer_of(announce.text(&self.loaded.task, now_ms))
    }

    async fn end(&self, outcome: &Outcome) -> Answer {
        let task = &self.loaded.task;
        match outcome {
            Outcome::Completed(Payload::Inline(result)) => self.fit(result.clone()),
            Outcome::Completed(Payload::Kept { .. }) => {
                let kept = self.runner.ledger.load_kept(task).await.ok().flatten();
                let text = kept.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
                text.and_then(|text| RawValue::from_string(text).ok())
                    .map_or_else(|| self.store_unavailable(), |result| self.fit(result))
            }
            Outcome::Failed(error) => Answer::Error(own(error.clone())),
            Outcome::Cancelled => {
                Answer::Error(own(RpcError::internal("The call was cancelled").to_raw()))
            }
        }
    }

    fn store_unavailable(&self) -> Answer {
        let effect = self.loaded.task.failure(Reason::StoreLost).effect;
        Answer::StoreUnavailable(effect)
    }

    /// The result that a client would have had without a record.
    fn fit(&self, result: Box<RawValue>) -> Answer {
        if self.terms.face == Era::Legacy {
            return result::for_legacy(result.get()).map_or(Answer::Result(result), answer_of);
        }
        let upstream = &self.runner.upstream;
        let info = upstream
            .last_discovered(*self.loaded.task.caller.as_bytes())
            .filter(|_| upstream.known_era() == Some(Era::Legacy))
            .and_then(|known| known.server_info.clone());
        match info {
            Some(info) => result::with_server_info(result.get(), &info)
                .map_or(Answer::Result(result), answer_of),
            None => Answer::Result(result),
        }
    }

    /// The call's progress, under the token of this client.
    async fn relay(&mut self, seat: &Seat) {
        let task = &self.loaded.task;
        let Some(token) = &self.terms.progress_token else {
            return;
        };
        if task.progress == self.told {
            return;
        }
        self.told.clone_from(&task.progress);
        let Some(progress) = &task.progress else {
            return;
        };
        let mut params = Writer::object();
        params.raw("progressToken", token.get());
        params.number("progress", progress.progress);
        if let Some(total) = progress.total {
            params.number("total", total);
        }
        if let Some(message) = &task.status_message {
            params.str("message", message);
        }
        let progress = envelope::notification("notifications/progress", &params.end());
        seat.tell(progress, self.announce_at).await;
    }

    /// Puts to a legacy client what the call asks, under names by which any replica takes the answer.
    async fn ask(&mut self, seat: &Seat) {
        if self.terms.face == Era::Modern {
            return;
        }
        let task = &self.loaded.task;
        let open = view_2025::questions_of_call(task, self.terms.declared.as_deref());
        let open = open.filter(|(key, _)| !self.put.contains(*key));
        let open: Vec<(Box<str>, String)> = open.map(|(key, text)| (key.into(), text)).collect();
        for (key, question) in open {
            self.put.insert(key);
            seat.ask(question, self.deadline()).await;
        }
    }

    /// Writes down that somebody waits, for the replica that the last client left.
    async fn sign(&mut self) {
        let Some(pause) = pause(&self.loaded) else {
            self.sign_at = None;
            return;
        };
        let WhenLeft::RunsFor(window_ms) = self.loaded.task.when_left else {
            return;
        };
        let name = attendance(self.loaded.task.id);
        let window = Duration::from_millis(window_ms);
        // Not written, the call may be ended under a client that would come back for it.
        let _ = self.runner.notes.put(name, "1".into(), window).await;
        self.sign_at = Some(Instant::now() + pause);
    }

    /// The client went away before it had its answer.
    async fn leave(&self) {
        match self.loaded.task.when_left {
            WhenLeft::Cancelled => self.runner.disconnect(&self.loaded).await,
            WhenLeft::RunsFor(window_ms) => {
                let window = Duration::from_millis(window_ms);
                self.runner.linger(self.loaded.task.id, window);
            }
            WhenLeft::RunsOn => {}
        }
    }

    fn is_due(&self) -> bool {
        self.deadline() <= Instant::now()
    }

    fn deadline(&self) -> Instant {
        let now_ms = self.runner.ledger.now_ms();
        let left = self.loaded.task.deadline_ms.saturating_sub(now_ms);
        Instant::now() + Duration::from_millis(left)
    }
}

/// Under which the clients of a call say that they wait.
fn attendance(id: TaskId) -> Name {
    Name::of(Kind::Claim, &["attended", &id.to_string()])
}

/// How often they say so: often enough that no window passes between.
fn pause(loaded: &Loaded) -> Option<Duration> {
    match loaded.task.when_left {
        WhenLeft::RunsFor(window_ms) => Some(Duration::from_millis(window_ms / 3 + 1)),
        WhenLeft::Cancelled | WhenLeft::RunsOn => None,
    }
}

fn answer_of(json: String) -> Answer {
    RawValue::from_string(json).map_or(
        Answer::StoreUnavailable(SideEffect::Unknown),
        Answer::Result,
    )
}

fn own(error: Box<RawValue>) -> UpstreamError {
    UpstreamError {
        error,
        status: 200,
        www_authenticate: None,
    }
}

async fn unauthorized(receiver: &mut Option<oneshot::Receiver<UpstreamError>>) -> UpstreamError {
    if let Some(waiting) = receiver {
        match waiting.await {
            Ok(error) => return error,
            Err(_ended) => *receiver = None,
        }
    }
    std::future::pending().await
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
