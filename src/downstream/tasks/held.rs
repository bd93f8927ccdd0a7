//! Held polls: a poll of a client that knows that its task works, and how far it is, is answered when that changes,
//! or when `tasks.poll_hold` is over. So clients are notified of an end when it comes, and ask less often.
//!
//! A held poll is a request that waits: it has no thread and no job, one timer, and a watch, which costs the store
//! nothing. There are never more of them than `limits.held_polls`; further polls are answered at once.

use std::time::Duration;

use tokio::time::Instant;

use super::service::CallerTasks;
use crate::downstream::held_polls::Place;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::runner::watch::Watch;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::state::{Status, Task};

/// A credential ends this long after the last poll that it lets wait: the answer must reach the client before.
const BEFORE_EXPIRY_MS: u64 = 500;

/// One held poll.
struct HeldPoll<'a> {
    proxy: &'a Proxy,
    tasks: CallerTasks<'a>,
    watch: Watch,
    ends_at: Instant,
    _place: Place,
}

impl Proxy {
    /// The task for a poll of its caller: as it is now if that is new to the client, or else as it is when it changes, or when
    /// the poll was held for long enough. `None`: the task is unknown to the caller.
    pub(in crate::downstream) async fn poll(
        &self,
        by: &Requester,
        id: TaskId,
    ) -> Result<Option<Loaded>, StoreError> {
        let (runner, tasks) = (&self.runner, self.tasks_for(by));
        // Watched before it is read, so that no change falls in between.
        let watch = runner
            .told_states()
            .knows(id)
            .then(|| runner.watches().watch(vec![id]));
        let Some(mut loaded) = tasks.find(id).await? else {
            return Ok(None);
        };
        if let Some(watch) = watch
            && let Some(held) = self.hold(by, &loaded.task, watch)
        {
            match Box::pin(held.until_news(loaded)).await? {
                Some(news) => loaded = news,
                None => return Ok(None),
            }
        }
        // Noted although the answer may get lost: a client that repeats its poll then waits for `poll_hold` at most.
        runner.told_states().tell(&loaded.task);
        tasks.polled(&loaded.task);
        Ok(Some(loaded))
    }

    /// `None`: the poll is answered at once.
    fn hold<'a>(&'a self, by: &'a Requester, task: &Task, watch: Watch) -> Option<HeldPoll<'a>> {
        let (rule, _) = by.rules.for_tool(&task.name);
        let hold_ms = rule.poll_hold_ms.min(self.lifetime_ms(by));
        // A client that asks again for a task with a question wants to see the question again, and may have been restarted.
        let works = task.status() == Status::Working;
        let waits = works && hold_ms > 0 && !by.is_web_page && !self.closing.is_cancelled();
        if !waits || self.runner.told_states().is_news(task) {
            return None;
        }
        Some(HeldPoll {
            proxy: self,
            tasks: self.tasks_of(&by.caller),
            watch,
            ends_at: Instant::now() + Duration::from_millis(hold_ms),
            _place: self.held_polls.place(by)?,
        })
    }

    /// Returns the time that the client's credential is good.
    fn lifetime_ms(&self, by: &Requester) -> u64 {
        let end = by.identity.as_ref().and_then(|it| it.ends_at_ms);
        let (Some(end_ms), Some(auth)) = (end, &self.auth) else {
            return u64::MAX;
        };
        end_ms.saturating_sub(auth.now_ms().saturating_add(BEFORE_EXPIRY_MS))
    }
}

impl HeldPoll<'_> {
    /// Waits for a change that the client does not know of. `None`: the task is gone.
    async fn until_news(self, mut loaded: Loaded) -> Result<Option<Loaded>, StoreError> {
        let id = loaded.task.id;
        let runner = &self.proxy.runner;
        let mut over = std::pin::pin!(tokio::time::sleep_until(self.ends_at));
        loop {
            let is_over = tokio::select! {
                // Biased, so that a change in the last moment is read and becomes the answer.
                biased;
                _ = self.watch.changed() => false,
                // The client finds another replica.
                () = self.proxy.closing.cancelled() => return Ok(Some(loaded)),
                () = &mut over => true,
            };
            // While the store is away no change is heard of: this poll then ends as any poll does.
            if is_over && *runner.store_answers().borrow() {
                return Ok(Some(loaded));
            }
            match self.tasks.find(id).await? {
                Some(found) => loaded = found,
                None => return Ok(None),
            }
            if is_over || runner.told_states().is_news(&loaded.task) {
                return Ok(Some(loaded));
            }
        }
    }
}
