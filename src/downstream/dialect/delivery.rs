//! Who tells a session of its tasks: one job for each session that has open tasks and a stream open
//! here.
//!
//! It pushes questions and changes of status on the session's GET stream. The record is what counts: a
//! job that ends, or a replica that does, loses nothing that a later `tasks/get`, `tasks/result` or GET
//! does not begin again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::super::inbound::requester::Requester;
use super::super::keep_alive::KEEP_ALIVE;
use super::super::legacy::pushes::SessionKey;
use super::super::proxy::Shared;
use super::deliveries::{OnResult, Session, owned};
use super::said::{self, Stream};
use super::{progress, question};
use crate::mcp::envelope;
use crate::mcp::tasks_2025::STATUS;
use crate::runner::watch::Watch;
use crate::task::id::{Caller, TaskId};
use crate::task::state::{Status, Task};
use crate::task::view_2025;

/// Open tasks of one session that are told of. More are polled.
const TASKS_MAX: usize = 256;

/// How soon a stream that was full, or a store that did not answer, is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Puts a question on the session's own stream. False where it is on that of a `tasks/result` here, or
/// the stream is not open or slow.
fn push(front: &Shared, question: &question::Question<'_>, text: String) -> bool {
    let table = front.deliveries.table();
    !table.on_results.contains_key(&owned(question)) && front.pushes.push(question.session, text)
}

/// Puts a question on the stream of a `tasks/result`. `None`: the session's own stream is open here.
pub(super) fn put_on_result(front: &Shared, question: &question::Question<'_>) -> Option<OnResult> {
    // At the same time as `push` decides the same: each question goes one way.
    let mut table = front.deliveries.table();
    if front.pushes.is_open(question.session) {
        return None;
    }
    let question = owned(question);
    *table.on_results.entry(question.clone()).or_default() += 1;
    Some(OnResult {
        deliveries: Arc::clone(&front.deliveries),
        question,
    })
}

/// The requester's session is told of this open task from here on. It knows of this status.
pub(super) fn follow(front: &Shared, by: &Requester, id: TaskId, status: Status) {
    let Some(key) = by.session else { return };
    let mut table = front.deliveries.table();
    let Some(session) = table.session(key, by.caller) else {
        return;
    };
    if session.tasks.len() >= TASKS_MAX && session.job.is_none() {
        // Nobody looks whether they have ended.
        session.tasks.pop_first();
    }
    if session.tasks.len() < TASKS_MAX || session.tasks.contains_key(&id) {
        session.tasks.entry(id).or_insert(status);
        run(front, key, session);
    }
}

/// This task has ended: where no job looks after it, it is forgotten here.
pub(super) fn ended(front: &Shared, by: &Requester, id: TaskId) {
    let Some(key) = by.session else { return };
    let mut table = front.deliveries.table();
    let Some(session) = table.sessions.get_mut(&key) else {
        return;
    };
    if session.job.is_none() {
        session.tasks.remove(&id);
        if session.tasks.is_empty() {
            table.sessions.remove(&key);
        }
    }
}

/// The session's stream was opened here.
pub(super) fn opened(front: &Shared, key: SessionKey) {
    if let Some(session) = front.deliveries.table().sessions.get_mut(&key) {
        run(front, key, session);
    }
}

/// Wakes the session's job, or starts it where there is a stream to tell on.
fn run(front: &Shared, key: SessionKey, session: &mut Session) {
    if let Some(job) = &session.job {
        job.notify_one();
        return;
    }
    let Some(stream) = front.pushes.stream(key) else {
        return;
    };
    let woken = Arc::new(Notify::new());
    session.job = Some(Arc::clone(&woken));
    let job = Job {
        front: Arc::clone(front),
        key,
        caller: session.caller,
        woken,
        watch: front.runner.watches().watch(Vec::new()),
        stream,
        asked: BTreeMap::new(),
        heard: BTreeMap::new(),
        tell_again: Instant::now(),
        pending: BTreeSet::new(),
        again: BTreeSet::new(),
    };
    let closing = front.closing.clone();
    front
        .passing
        .spawn(async move { closing.run_until_cancelled(job.run()).await });
}

struct Job {
    front: Shared,
    key: SessionKey,
    caller: Caller,
    woken: Arc<Notify>,
    watch: Watch,
    /// On which stream the questions were put.
    stream: u64,
    /// The keys of those that are open, for each task that is watched.
    asked: BTreeMap<TaskId, BTreeSet<Box<str>>>,
    /// And what was told of their progress.
    heard: BTreeMap<TaskId, progress::Heard>,
    /// When other replicas are to be told that the questions are there.
    tell_again: Instant,
    /// What may have changed.
    pending: BTreeSet<TaskId>,
    /// What is to be tried again a little later.
    again: BTreeSet<TaskId>,
}

impl Job {
    async fn run(mut self) {
        while self.goes_on() {
            match self.pending.pop_first() {
                Some(id) => self.look_at(id).await,
                None => self.wait().await,
            }
        }
    }

    /// Takes in what is new of the session. False at the end: then the next one to speak of its
    /// tasks starts another job.
    fn goes_on(&mut self) -> bool {
        let mut table = self.front.deliveries.table();
        let Some(session) = table.sessions.get_mut(&self.key) else {
            return false;
        };
        let stream = self.front.pushes.stream(self.key);
        let Some(stream) = stream.filter(|_| !session.tasks.is_empty()) else {
            session.job = None;
            if session.tasks.is_empty() {
                table.sessions.remove(&self.key);
            }
            return false;
        };
        if stream != self.stream {
            // What was said on another stream may never have arrived.
            self.stream = stream;
            self.asked.values_mut().for_each(BTreeSet::clear);
            self.pending.extend(self.asked.keys());
        }
        self.pending.append(&mut session.again);
        for id in session.tasks.keys() {
            if !self.asked.contains_key(id) {
                // Watched before it is read, so that no change falls in between.
                self.watch.also(*id);
                self.asked.insert(*id, BTreeSet::new());
                self.pending.insert(*id);
            }
        }
        true
    }

    async fn wait(&mut self) {
        let pause = if self.again.is_empty() {
            KEEP_ALIVE
        } else {
            TRY_AGAIN
        };
        let asks = self.asks();
        tokio::select! {
            id = self.watch.changed() => {
                self.pending.insert(id);
            }
            () = sleep_until(self.tell_again), if asks => self.tell_others().await,
            () = self.woken.notified() => {}
            () = sleep(pause) => self.pending.append(&mut self.again),
        }
    }

    async fn look_at(&mut self, id: TaskId) {
        if !self.heard.contains_key(&id) {
            let read = progress::Read {
                task: id,
                by: Some(self.key),
            };
            match progress::Heard::of(&self.front, read).await {
                Ok(heard) => {
                    self.heard.insert(id, heard);
                }
                Err(_away) => {
                    self.again.insert(id);
                    return;
                }
            }
        }
        match self.front.tasks_of(&self.caller).find(id).await {
            Ok(Some(loaded)) => self.tell(&loaded.task).await,
            Ok(None) => self.forget(id),
            Err(_away) => {
                self.again.insert(id);
            }
        }
    }

    async fn tell(&mut self, task: &Task) {
        let (front, key) = (&self.front, self.key);
        if front.deliveries.is_news(key, task.id, task.status()) {
            // One that is dropped is made up for by the client's next poll.
            let now_ms = front.runner.ledger().now_ms();
            front.pushes.push(key, notification(task, now_ms));
        }
        let heard = self.heard.get_mut(&task.id);
        if let Some(news) = heard.and_then(|heard| heard.news(task)) {
            front.pushes.push(key, news);
        }
        self.ask(task).await;
        if task.is_ended() {
            self.forget(task.id);
        }
    }

    async fn ask(&mut self, task: &Task) {
        if !self.asks() {
            self.tell_again = Instant::now() + said::TELL_AGAIN;
        }
        let (front, session) = (&self.front, self.key);
        let open: Vec<(&str, String)> = view_2025::questions(task).collect();
        let asked = self.asked.entry(task.id).or_default();
        asked.retain(|key| open.iter().any(|(name, _)| **key == **name));
        for (key, text) in open {
            let question = question::Question {
                session,
                task: task.id,
                key,
            };
            if asked.contains(key) || front.deliveries.is_on_result(&question) {
                continue;
            }
            let may_be_said = question.may_be_on(Stream::Session, front).await;
            if may_be_said && push(front, &question, text) {
                asked.insert(key.into());
            } else {
                self.again.insert(task.id);
            }
        }
    }

    fn asks(&self) -> bool {
        self.asked.values().any(|asked| !asked.is_empty())
    }

    async fn tell_others(&mut self) {
        self.tell_again = Instant::now() + said::TELL_AGAIN;
        if self.front.pushes.stream(self.key) != Some(self.stream) {
            return;
        }
        for (task, asked) in &self.asked {
            for key in asked {
                let question = question::Question {
                    session: self.key,
                    task: *task,
                    key,
                };
                question.is_on(Stream::Session, &self.front).await;
            }
        }
    }

    fn forget(&mut self, id: TaskId) {
        self.front.deliveries.forget(self.key, id);
        self.asked.remove(&id);
        self.heard.remove(&id);
        self.again.remove(&id);
        self.watch.no_more(id);
    }
}

fn notification(task: &Task, now_ms: u64) -> String {
    envelope::notification(STATUS, &view_2025::task(task, now_ms))
}
