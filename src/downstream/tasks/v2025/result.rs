//! `tasks/result`: waits for the end of a task, and meanwhile asks the client its questions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::question::SessionQuestion;
use super::question_stream::{RENEWAL, StreamKind};
use super::{deliveries, delivery, progress};
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::patience;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::outbound::stream::{ResponseEvent, ResponseSource, respond};
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::refusal::{Refusal, task_id};
use crate::mcp::error::RpcError;
use crate::mcp::json::Object;
use crate::mcp::tasks_2025;
use crate::runner::watch::Watch;
use crate::store::StoreError;
use crate::task::id::{Caller, TaskId};
use crate::task::large_results::{ReadHint, shortened};
use crate::task::state::Task;
use crate::task::task_end::TaskEnd;
use crate::task::view_2025;
use crate::upstream::Forwarded;

/// When raincheck is about to end, a call that this replica carries has this long to end with its own error.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The pause before it is checked whether another stream still has a question.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Responds with the end of a task.
pub(super) async fn wait_for(
    proxy: &Arc<Proxy>,
    by: &Requester,
    id: &RawValue,
    params: &Object<'_>,
) -> Result<Response<Body>, Refusal> {
    let task = task_id(params)?;
    let waiting = ResultStream::begin(proxy, by, id, task).await?;
    let patience = by.reads_events.then(|| by.head_patience(patience::LEGACY));
    Ok(respond(waiting, patience, None).await)
}

struct ResultStream {
    proxy: Arc<Proxy>,
    caller: Caller,
    /// The part of the client's request that the server gets, should this replica have to go on with a call.
    shown: Forwarded,
    key: Option<SessionKey>,
    /// The client reads more than the answer.
    streams: bool,
    id: Box<RawValue>,
    task: TaskId,
    watch: Watch,
    /// The record may have changed since it was last read.
    dirty: bool,
    carried_here: bool,
    /// Open questions that are not on this stream.
    open: BTreeMap<Box<str>, String>,
    /// Open questions that are on this stream.
    asked: BTreeSet<Box<str>>,
    /// When the notes of those questions are renewed.
    renew_at: Instant,
    /// Keeps those questions off the session's GET stream.
    put: Vec<deliveries::OnResult>,
    heard: progress::ToldProgress,
    /// The newest progress, if the client was not notified of it yet.
    news: Option<String>,
    answer: Option<Rpc>,
    _answer: TaskTrackerToken,
}

impl ResultStream {
    async fn begin(
        proxy: &Arc<Proxy>,
        by: &Requester,
        id: &RawValue,
        task: TaskId,
    ) -> Result<Self, Refusal> {
        // Watched before it is read, so that no change falls in between.
        let watch = proxy.runner.watches().watch(vec![task]);
        let loaded = proxy.tasks_for(by).get(task).await?;
        if !loaded.task.is_ended() {
            delivery::follow(proxy, by, task, loaded.task.status());
        }
        let read = progress::TaskReader {
            task,
            by: by.session,
        };
        let mut waiting = Self {
            proxy: Arc::clone(proxy),
            caller: by.caller,
            shown: by.shows(),
            key: by.session,
            streams: by.reads_events,
            id: id.to_owned(),
            task,
            watch,
            dirty: false,
            carried_here: false,
            open: BTreeMap::new(),
            asked: BTreeSet::new(),
            renew_at: Instant::now(),
            put: Vec::new(),
            heard: progress::ToldProgress::of(proxy, read).await?,
            news: None,
            answer: None,
            _answer: proxy.passing.token(),
        };
        waiting.see(&loaded.task).await?;
        Ok(waiting)
    }

    /// Sends the client to another replica, which can report the end.
    fn closing(&self) -> ResponseEvent {
        let error = RpcError::internal("The proxy is shutting down; ask again");
        ResponseEvent::Answer(Rpc::error(self.id.get(), &error))
    }

    /// Returns the message that the client receives before the end. The session's GET stream sends it instead, if it
    /// is open here; and a question that a stream of another replica has stays there.
    ///
    /// Cancel safe.
    async fn message(&mut self) -> Option<String> {
        let elsewhere = self
            .key
            .is_some_and(|key| self.proxy.mailboxes.is_open(key));
        if elsewhere || !self.streams {
            return None;
        }
        if let Some(news) = self.news.take() {
            return Some(news);
        }
        let key = self.key_to_say().await?;
        let question = self.open.remove(&key)?;
        // The claim has just written the note of this question, so its first renewal is due one pause later.
        if self.asked.is_empty() {
            self.renew_at = Instant::now() + RENEWAL;
        }
        self.asked.insert(key);
        Some(question)
    }

    /// Returns the key of an open question that is nowhere else, and counts as sent here.
    async fn key_to_say(&mut self) -> Option<Box<str>> {
        let Some(session) = self.key else {
            return self.open.keys().next().cloned();
        };
        for key in self.open.keys() {
            let question = self.question(session, key);
            if question.claim(StreamKind::Result, &self.proxy).await {
                // If the GET stream has opened meanwhile, it gets the question when the note of this claim expires.
                let put = delivery::put_on_result(&self.proxy, &question)?;
                self.put.push(put);
                return Some(key.clone());
            }
        }
        None
    }

    fn question<'a>(&self, session: SessionKey, key: &'a str) -> SessionQuestion<'a> {
        SessionQuestion {
            session,
            task: self.task,
            key,
        }
    }

    async fn renew_questions(&mut self) {
        self.renew_at = Instant::now() + RENEWAL;
        let Some(session) = self.key else { return };
        for key in &self.asked {
            let question = self.question(session, key);
            question.renew(StreamKind::Result, &self.proxy).await;
        }
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let tasks = self.proxy.tasks_of(&self.caller).over_stream(&self.shown);
        if let Some(loaded) = tasks.find(self.task).await? {
            if loaded.task.waits_for_client() && self.shown.credentials.is_some() {
                self.watch.mark_again(self.task);
            }
            tasks.polled(&loaded.task);
            self.see(&loaded.task).await?;
        } else {
            let unknown = Rpc::error(self.id.get(), &RpcError::unknown_task());
            self.answer = Some(unknown.on_session());
        }
        Ok(())
    }

    async fn see(&mut self, task: &Task) -> Result<(), StoreError> {
        let is_owner = task.owner.as_ref() == Some(self.proxy.runner.incarnation());
        self.carried_here = is_owner && !task.released;
        if task.is_ended() {
            self.answer = Some(self.end(task).await?);
            return Ok(());
        }
        // News that did not go out yet stays until newer progress replaces it.
        self.news = self.heard.notification(task).or_else(|| self.news.take());
        let open = view_2025::questions(task).map(|(key, message)| (key.into(), message));
        self.open = open.collect();
        self.asked.retain(|key| self.open.remove(key).is_some());
        Ok(())
    }

    /// The response to `tasks/result` of a task that has ended: what the call would have got without a
    /// task.
    async fn end(&self, task: &Task) -> Result<Rpc, StoreError> {
        let id = self.id.get();
        let kept = match self.proxy.runner.ledger().load_kept(task).await {
            // It will not come back.
            Err(StoreError::Corrupt(_)) => return Ok(unreadable(id)),
            kept => kept?,
        };
        let result = match TaskEnd::of(task, kept.as_deref()) {
            Some(TaskEnd::Completed(result)) => result.text(),
            Some(TaskEnd::Failed(error)) => return Ok(Rpc::verbatim_error(id, error)),
            Some(TaskEnd::Cancelled) => {
                let error = RpcError::internal("The task was cancelled");
                return Ok(Rpc::error(id, &error));
            }
            None => return Ok(unreadable(id)),
        };
        let rules = self.proxy.runner.rules();
        let inline_bytes = rules.for_tool(&task.name).0.result_inline.for_clients();
        let way = ReadHint::Resource { knows_links: true };
        let excerpt = shortened(result, inline_bytes, task.id, way);
        let result = excerpt.as_deref().unwrap_or(result);
        let result = tasks_2025::result_for_client(result, &task.id.to_string());
        Ok(match result {
            Ok(result) => Rpc::result(id, &result),
            Err(_) => unreadable(id),
        })
    }
}

impl ResponseSource for ResultStream {
    async fn next(&mut self) -> Option<ResponseEvent> {
        loop {
            if self.dirty {
                if self.read().await.is_err() {
                    self.watch.mark_again(self.task);
                }
                // Only now: a read that is broken off is made again.
                self.dirty = false;
            }
            if let Some(answer) = self.answer.take() {
                return Some(ResponseEvent::Answer(answer));
            }
            if let Some(message) = self.message().await {
                return Some(ResponseEvent::Message(message));
            }
            let look_again = !self.open.is_empty();
            let again = Instant::now() + LOOK_AGAIN;
            let asks = !self.asked.is_empty();
            tokio::select! {
                _ = self.watch.changed() => self.dirty = true,
                () = tokio::time::sleep_until(again), if look_again => {}
                () = tokio::time::sleep_until(self.renew_at), if asks => {
                    self.renew_questions().await;
                }
                // What is carried here ends in time; what is not may take any time.
                () = self.proxy.closing.cancelled(), if !self.carried_here => {
                    return Some(self.closing());
                }
                () = halted(&self.proxy) => return Some(self.closing()),
            }
        }
    }
}

/// Resolves when raincheck is about to end, and what is carried here should have ended. Cancel safe.
async fn halted(proxy: &Arc<Proxy>) {
    proxy.runner.halt().cancelled().await;
    tokio::time::sleep(LAST_WORDS).await;
}

fn unreadable(id: &str) -> Rpc {
    Rpc::error(id, &RpcError::internal("The task's result cannot be read"))
}
