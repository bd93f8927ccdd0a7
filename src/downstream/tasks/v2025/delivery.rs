//! Notifies a session of its tasks: one job for each session that has open tasks and a GET stream on this replica.
//!
//! The job pushes questions, progress and changes of status on the GET stream. It keeps nothing that the records
//! do not have: when the job or its replica ends, a later `tasks/get`, `tasks/result` or GET begins another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::deliveries::{OnResult, TaskSession, owned};
use super::progress;
use super::question::SessionQuestion;
use super::question_stream::{RENEWAL, StreamKind};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::keepalive::COMMENT_PAUSE;
use crate::downstream::proxy::Proxy;
use crate::mcp::envelope;
use crate::mcp::tasks_2025::STATUS;
use crate::runner::watch::Watch;
use crate::task::id::{Caller, TaskId};
use crate::task::state::{Status, Task};
use crate::task::view_2025;

/// The largest number of open tasks of one session of which the job sends notifications. The client polls further
/// ones.
const TASKS_MAX: usize = 256;

/// Puts a question on the session's GET stream. False where the stream of a `tasks/result` here has the
/// question, or the GET stream is closed or slow.
fn push(proxy: &Arc<Proxy>, question: &SessionQuestion<'_>, text: String) -> bool {
    let table = proxy.deliveries.table();
    !table.on_results.contains_key(&owned(question)) && proxy.mailboxes.push(question.session, text)
}

/// Puts a question on the stream of a `tasks/result`. `None`: the session's GET stream is open here.
pub(super) fn put_on_result(
    proxy: &Arc<Proxy>,
    question: &SessionQuestion<'_>,
) -> Option<OnResult> {
    // Under the lock that `push` takes, so that each question goes to one kind of stream.
    let mut table = proxy.deliveries.table();
    if proxy.mailboxes.is_open(question.session) {
        return None;
    }
    let question = owned(question);
    *table.on_results.entry(question.clone()).or_default() += 1;
    Some(OnResult {
        deliveries: Arc::clone(&proxy.deliveries),
        question,
    })
}

/// Has the requester's session notified of this open task from here on. It knows of this status.
pub(super) fn follow(proxy: &Arc<Proxy>, by: &Requester, id: TaskId, status: Status) {
    let Some(key) = by.session else { return };
    let mut table = proxy.deliveries.table();
    let Some(session) = table.session(key, by.caller) else {
        return;
    };
    if session.tasks.len() >= TASKS_MAX && session.job.is_none() {
        // No job removes ended tasks: the oldest makes room.
        session.tasks.pop_first();
    }
    if session.tasks.len() < TASKS_MAX || session.tasks.contains_key(&id) {
        session.tasks.entry(id).or_insert(status);
        run(proxy, key, session);
    }
}

/// Forgets a task that has ended, if no job sends notifications of it.
pub(super) fn ended(proxy: &Arc<Proxy>, by: &Requester, id: TaskId) {
    let Some(key) = by.session else { return };
    let mut table = proxy.deliveries.table();
    let Some(session) = table.sessions.get_mut(&key) else {
        return;
    };
    // A job sends the last status before it forgets the task itself.
    if session.job.is_none() {
        session.tasks.remove(&id);
        if session.tasks.is_empty() {
            table.sessions.remove(&key);
        }
    }
}

/// The session opened its GET stream on this replica.
pub(super) fn opened(proxy: &Arc<Proxy>, key: SessionKey) {
    if let Some(session) = proxy.deliveries.table().sessions.get_mut(&key) {
        run(proxy, key, session);
    }
}

/// Wakes the session's job, or starts one if the session's GET stream is open here.
fn run(proxy: &Arc<Proxy>, key: SessionKey, session: &mut TaskSession) {
    if let Some(job) = &session.job {
        job.notify_one();
        return;
    }
    let Some(stream) = proxy.mailboxes.stream(key) else {
        return;
    };
    let woken = Arc::new(Notify::new());
    session.job = Some(Arc::clone(&woken));
    let job = Job {
        proxy: Arc::clone(proxy),
        key,
        caller: session.caller,
        woken,
        watch: proxy.runner.watches().watch(Vec::new()),
        stream,
        asked: BTreeMap::new(),
        heard: BTreeMap::new(),
        renew_at: Instant::now(),
    };
    let closing = proxy.closing.clone();
    // Ended by a drain: the job keeps nothing that the records do not have, so nothing is lost.
    proxy
        .passing
        .spawn(async move { closing.run_until_cancelled(Box::pin(job.run())).await });
}

struct Job {
    proxy: Arc<Proxy>,
    key: SessionKey,
    caller: Caller,
    woken: Arc<Notify>,
    watch: Watch,
    /// The number of the stream that has the questions.
    stream: u64,
    /// For each watched task, the keys of the open questions that are on the stream.
    asked: BTreeMap<TaskId, BTreeSet<Box<str>>>,
    /// For each watched task, the progress that the client was notified of.
    heard: BTreeMap<TaskId, progress::ToldProgress>,
    /// The time at which other replicas are notified again that the questions are on this stream.
    renew_at: Instant,
}

impl Job {
    async fn run(mut self) {
        while self.goes_on() {
            self.wait().await;
        }
    }

    /// Takes over what the session has new. False when the job is over: the next request about the session's
    /// tasks starts another.
    fn goes_on(&mut self) -> bool {
        let mut table = self.proxy.deliveries.table();
        let Some(session) = table.sessions.get_mut(&self.key) else {
            return false;
        };
        let stream = self.proxy.mailboxes.stream(self.key);
        let Some(stream) = stream.filter(|_| !session.tasks.is_empty()) else {
            // Under the lock of the table: a request that comes now starts a new job, and is not lost to this one.
            session.job = None;
            if session.tasks.is_empty() {
                table.sessions.remove(&self.key);
            }
            return false;
        };
        if stream != self.stream {
            // Questions on the previous stream may never have arrived.
            self.stream = stream;
            for (id, asked) in &mut self.asked {
                asked.clear();
                self.watch.mark(*id);
            }
        }
        for id in std::mem::take(&mut session.again) {
            self.watch.mark(id);
        }
        for id in session.tasks.keys() {
            if !self.asked.contains_key(id) {
                // Watched before it is read, so that no change falls in between.
                self.watch.also(*id);
                self.asked.insert(*id, BTreeSet::new());
                self.watch.mark(*id);
            }
        }
        true
    }

    async fn wait(&mut self) {
        let asks = self.asks();
        tokio::select! {
            id = self.watch.changed() => self.look_at(id).await,
            () = sleep_until(self.renew_at), if asks => self.renew_questions().await,
            () = self.woken.notified() => {}
            // By then the stream may have ended.
            () = sleep(COMMENT_PAUSE) => {}
        }
    }

    async fn look_at(&mut self, id: TaskId) {
        if !self.heard.contains_key(&id) {
            let read = progress::TaskReader {
                task: id,
                by: Some(self.key),
            };
            match progress::ToldProgress::of(&self.proxy, read).await {
                Ok(heard) => {
                    self.heard.insert(id, heard);
                }
                // The store is away.
                Err(_) => return self.watch.mark_again(id),
            }
        }
        match self.proxy.tasks_of(&self.caller).find(id).await {
            Ok(Some(loaded)) => self.tell(&loaded.task).await,
            Ok(None) => self.forget(id),
            Err(_) => self.watch.mark_again(id),
        }
    }

    async fn tell(&mut self, task: &Task) {
        let (proxy, key) = (&self.proxy, self.key);
        if proxy.deliveries.is_news(key, task.id, task.status()) {
            // A client that misses the notification learns of the status with its next poll.
            let next_ms = proxy.runner.poll_interval_ms(task);
            proxy.mailboxes.push(key, notification(task, next_ms));
        }
        let heard = self.heard.get_mut(&task.id);
        if let Some(news) = heard.and_then(|told| told.notification(task)) {
            // A full stream loses this progress. The next one replaces it, and polls have it, too.
            proxy.mailboxes.push(key, news);
        }
        self.ask(task).await;
        if task.is_ended() {
            self.forget(task.id);
        }
    }

    async fn ask(&mut self, task: &Task) {
        // The claims below write the notes in the store, so the first renewal is due one pause later.
        if !self.asks() {
            self.renew_at = Instant::now() + RENEWAL;
        }
        let (proxy, session) = (&self.proxy, self.key);
        let open: Vec<(&str, String)> = view_2025::questions(task).collect();
        let asked = self.asked.entry(task.id).or_default();
        asked.retain(|key| open.iter().any(|(name, _)| **key == **name));
        for (key, text) in open {
            let question = SessionQuestion {
                session,
                task: task.id,
                key,
            };
            if asked.contains(key) || proxy.deliveries.is_on_result(&question) {
                continue;
            }
            let may_be_said = question.claim(StreamKind::Session, proxy).await;
            // The claim may take a while. `push` therefore checks again under the lock, before the question goes out.
            if may_be_said && push(proxy, &question, text) {
                asked.insert(key.into());
            } else {
                // The stream is full, or a stream of another kind has the question.
                self.watch.mark_again(task.id);
            }
        }
    }

    fn asks(&self) -> bool {
        self.asked.values().any(|asked| !asked.is_empty())
    }

    async fn renew_questions(&mut self) {
        self.renew_at = Instant::now() + RENEWAL;
        // A newer stream has none of these questions yet, so their notes must not be prolonged.
        if self.proxy.mailboxes.stream(self.key) != Some(self.stream) {
            return;
        }
        for (task, asked) in &self.asked {
            for key in asked {
                let question = SessionQuestion {
                    session: self.key,
                    task: *task,
                    key,
                };
                question.renew(StreamKind::Session, &self.proxy).await;
            }
        }
    }

    fn forget(&mut self, id: TaskId) {
        self.proxy.deliveries.forget(self.key, id);
        self.asked.remove(&id);
        self.heard.remove(&id);
        self.watch.no_more(id);
    }
}

fn notification(task: &Task, poll_interval_ms: u64) -> String {
    envelope::notification(STATUS, &view_2025::task(task, poll_interval_ms))
}
