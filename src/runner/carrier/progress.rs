//! The view that a poller has of a running call: the server's progress, and how long the call waits.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::pending::ProgressNews;
use super::{CallStage, Carrier, Flow, Timer};
use crate::store::ledger::ApplyError;
use crate::task::last_news::LastNews;
use crate::task::machine::{OwnerEvent, TaskEvent};
use crate::task::messages::{self, TaskMessage};

impl Carrier {
    pub(super) async fn on_progress(&mut self, params: &RawValue) -> Flow {
        let news = ProgressNews::read(params);
        if let Some(news) = news.as_ref().filter(|news| news.is_said) {
            let message = TaskMessage::new(self.runner.ledger.now_ms(), &news.message);
            messages::add(&mut self.progress.messages, message);
        }
        match &self.stage {
            CallStage::Recorded(_) => {
                if let Some(news) = news {
                    self.tell(news);
                }
            }
            CallStage::Plain(_) => {
                // The server echoes raincheck's token; the client knows its own.
                if let Some(client) = self.audience.client() {
                    client
                        .tell_progress(params.get(), self.timers.patience())
                        .await;
                }
                // The call may become a task, whose first polls show what the server said before.
                if news.is_some() {
                    self.progress.newest = news.map(Box::new);
                }
            }
        }
        Flow::Continue
    }

    /// The record keeps the last log messages. They go with the next commit of progress, or in one of their own where the
    /// client may read them: by a ticket.
    pub(super) fn on_log(&mut self, params: &RawValue) {
        if let Some(message) = TaskMessage::of_log(self.runner.ledger.now_ms(), params) {
            messages::add(&mut self.progress.messages, message);
            let recorded = self.stage.recorded();
            if recorded.is_some_and(|recorded| recorded.task().ticket.is_some()) {
                self.tell_progress_later();
            }
        }
    }

    /// Relays a notification to the client that waits. A slow client delays the call until the grace
    /// window or the call's time ends, and no longer.
    pub(super) async fn relay(&mut self, method: &str, params: &str) {
        if let Some(client) = self.audience.client() {
            client.tell(method, params, self.timers.patience()).await;
        }
    }

    /// Reports that the server is busy, or has taken the call after it was busy. The task shows this as soon as there
    /// is a task.
    pub(super) fn on_later(&mut self, pause: Option<Duration>) -> Flow {
        match pause {
            Some(pause) => self.tell_message(
                format!(
                    "The server is busy; it is asked again in {} s",
                    pause.as_secs().max(1)
                )
                .into(),
            ),
            None if self.stage.is_recorded() => {
                self.tell_message("The server has taken the call".into());
            }
            // Without a record nobody was shown that the server is busy, so nothing has to be taken back.
            None => self.forget_progress(),
        }
        Flow::Continue
    }

    /// Reports the length of the queue to pollers, once in each poll interval.
    pub(super) fn tell_queue(&mut self) -> Flow {
        let (Some(message), Some(recorded)) =
            (self.dispatch.queue_message(), self.stage.recorded())
        else {
            return Flow::Continue;
        };
        // A commit of the same message would cost as much as any other and show pollers nothing new.
        if recorded.task().status_message.as_deref() != Some(&*message) {
            self.tell_message(message);
        }
        self.tell_queue_later();
        Flow::Continue
    }

    pub(super) fn tell_queue_later(&mut self) {
        let recorded = self.stage.recorded();
        let Some(recorded) = recorded.filter(|_| self.dispatch.waits()) else {
            return;
        };
        let created_ms = recorded.task().created_ms;
        let age_ms = self.runner.ledger.now_ms().saturating_sub(created_ms);
        let pause_ms = self.server.rule.poll_interval_at(age_ms);
        let at = Instant::now() + Duration::from_millis(pause_ms);
        self.timers.arm(Timer::QueueMessage, at);
    }

    fn tell_message(&mut self, message: Box<str>) {
        self.tell(ProgressNews {
            message,
            progress: None,
            is_said: false,
        });
    }

    fn tell(&mut self, news: ProgressNews) {
        self.progress.newest = Some(Box::new(news));
        self.tell_progress_later();
    }

    /// Arms the commit of the pending progress, if the call has a record.
    pub(super) fn tell_progress_later(&mut self) {
        let has_news = self.progress.newest.is_some() || !self.progress.messages.is_empty();
        if has_news && self.stage.is_recorded() {
            let at = self.progress.not_before.unwrap_or_else(Instant::now);
            self.timers.arm(Timer::Progress, at);
        }
    }

    /// Drops the progress that is not committed yet, because it is out of date.
    pub(super) fn forget_progress(&mut self) {
        self.progress.newest = None;
        self.timers.disarm(Timer::Progress);
    }

    /// Takes the news that is not committed yet, for the commit of the end.
    pub(super) fn take_last_news(&mut self) -> LastNews {
        self.timers.disarm(Timer::Progress);
        let newest = self.progress.newest.take();
        let messages = std::mem::take(&mut self.progress.messages);
        LastNews::new(newest.and_then(|news| news.progress), messages)
    }

    pub(super) async fn commit_progress(&mut self) -> Flow {
        let Some(recorded) = self.stage.recorded() else {
            return Flow::Continue;
        };
        if self.progress.newest.is_none() && self.progress.messages.is_empty() {
            return Flow::Continue;
        }
        let now = Instant::now();
        if let Err(again) = self.runner.progress.take(now) {
            self.progress.not_before = Some(again);
            self.tell_progress_later();
            return Flow::Continue;
        }
        let task = recorded.task();
        let pause = Duration::from_millis(task.poll_interval_ms);
        // Set before the commit, so that a store that fails is not asked again at each notification.
        self.progress.not_before = Some(now + pause);
        let (message, progress) = match &self.progress.newest {
            Some(news) => (Some(news.message.clone()), news.progress.clone()),
            // Equal progress is no news to the machine, so that only the messages change the record.
            None => (None, task.progress.clone()),
        };
        let progressed = OwnerEvent::Progressed {
            message,
            progress,
            resume: self.resume_point(task),
            // Cloned, because the messages must stay for the next commit if this one fails.
            messages: self.progress.messages.clone(),
        };
        let event = TaskEvent::Owner(recorded.fence, progressed);
        match self.runner.ledger.apply(&recorded.loaded, event).await {
            Ok((loaded, _)) => {
                self.progress.newest = None;
                self.progress.messages.clear();
                self.act_on(loaded).await
            }
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            // What is not committed goes with the next commit. A retry of its own would keep the carrier waiting for a store
            // that is away, and with the carrier the client that waits for the answer.
            Err(ApplyError::Gone | ApplyError::Store(_)) => Flow::Continue,
        }
    }
}
