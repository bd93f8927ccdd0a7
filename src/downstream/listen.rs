//! `subscriptions/listen`: one stream of raincheck's own task changes and of whatever else the
//! client asked of the wrapped server.
//!
//! Per task a subscriber holds a dirty mark, never a body: the state is read when the client's
//! socket can take it, so a slow client sees fewer states, and always the newest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;

use super::body::Body;
use super::inbound::request::Modern;
use super::keep_alive::keep_alive;
use super::listen_leg::{Leg, REOPEN_PAUSE, Upstream};
use super::proxy::Shared;
use super::reply::{self, Rpc};
use super::sent;
use crate::mcp::envelope;
use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, Writer, is_object, prepend, quote, set, string};
use crate::mcp::meta::SUBSCRIPTION_ID;
use crate::mcp::sse;
use crate::runner::watch::Watch;
use crate::store::StoreError;
use crate::task::id::{Caller, TaskId};
use crate::task::view;
use crate::upstream::wrapped::ListenEvent;

/// A task that could not be read is read again after so long, once the store answers.
const READ_AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn answer(
    front: &Shared,
    modern: &Modern<'_>,
    caller: Caller,
    credentials: Option<HeaderValue>,
) -> Response<Body> {
    let id = modern.request.id.get();
    let filter = match Filter::read(&modern.request.params, front.settings.listen_task_ids_max) {
        Ok(filter) => filter,
        Err(error) => return Rpc::error(id, &error).into_response(),
    };
    if filter.task_ids.is_some() && !modern.meta.declares_tasks {
        return Rpc::error(id, &RpcError::tasks_required()).into_response();
    }
    let wanted = filter.task_ids.as_deref().unwrap_or_default();
    let ids: Vec<TaskId> = wanted
        .iter()
        .filter_map(|text| TaskId::parse(text))
        .collect();
    // Watched before they are read, so that no change falls in between.
    let mut watch = front.runner.watches().watch(ids.clone());
    let Ok(granted) = granted(front, &caller, ids).await else {
        return Rpc::store_unavailable(id).into_response();
    };
    // Anybody can name ids, and many.
    watch.keep_only(&granted);
    let kept = id.len() + filter.others.len();
    // Whoever listens may be the first to speak of this server: its era decides how it is asked.
    let _ = front.upstream.era_soon(credentials.clone()).await;
    let leg = Leg {
        front: Arc::clone(front),
        caller,
        credentials,
        capabilities: modern.meta.capabilities.get().into(),
        filter: filter.others.into(),
    };
    let (upstream, honoured) = leg.open_first().await;
    let acknowledged =
        acknowledgement(id, filter.task_ids.is_some(), &granted, honoured.as_deref());
    let subscription = Subscription {
        id: id.into(),
        granted: granted.clone(),
        watch,
        first: Some(acknowledged),
        pending: granted,
        owed: Vec::new(),
        read_again: None,
        upstream,
        leg,
        honoured,
        beat: keep_alive(),
        closing: front.closing.clone(),
        ended: false,
    };
    let events = Body::Events(subscription.into_stream().boxed());
    sent::asked_with(kept, reply::event_stream(events))
}

/// What a client wants to hear of.
struct Filter {
    task_ids: Option<Vec<String>>,
    /// The rest of the filter as JSON, for the wrapped server.
    others: String,
}

impl Filter {
    fn read(params: &Object<'_>, ids_max: usize) -> Result<Self, RpcError> {
        let notifications = params.get("notifications").filter(|raw| is_object(raw));
        let object = notifications
            .and_then(|raw| Object::parse(raw.get()).ok())
            .ok_or_else(|| {
                RpcError::invalid_params("Invalid params: notifications must be an object")
            })?;
        let task_ids = match object.get("taskIds") {
            None => None,
            Some(raw) => Some(
                serde_json::from_str::<Vec<String>>(raw.get())
                    .ok()
                    .filter(|ids| ids.len() <= ids_max)
                    .ok_or_else(|| {
                        RpcError::invalid_params(
                            "Invalid params: taskIds must be an array of strings, not too many",
                        )
                    })?,
            ),
        };
        Ok(Self {
            task_ids,
            others: object.render_filtered(|key| key != "taskIds"),
        })
    }
}

/// The tasks that exist and are the caller's; the others are absent, as if they never were.
async fn granted(
    front: &Shared,
    caller: &Caller,
    ids: Vec<TaskId>,
) -> Result<Vec<TaskId>, StoreError> {
    let mut granted = Vec::with_capacity(ids.len());
    for id in ids {
        if !granted.contains(&id) && front.find_by_id(id, caller).await?.is_some() {
            granted.push(id);
        }
    }
    Ok(granted)
}

fn acknowledgement(
    id: &str,
    wants_tasks: bool,
    granted: &[TaskId],
    honoured: Option<&str>,
) -> String {
    let mut notifications = Writer::object();
    let honoured = honoured
        .and_then(|json| Object::parse(json).ok())
        .unwrap_or_default();
    for (key, value) in honoured.iter() {
        notifications.raw(key, value.get());
    }
    if wants_tasks {
        let ids: Vec<String> = granted.iter().map(|id| quote(&id.to_string())).collect();
        notifications.raw("taskIds", &format!("[{}]", ids.join(",")));
    }
    let mut params = Writer::object();
    params
        .raw("_meta", &subscription_meta(id))
        .raw("notifications", &notifications.end());
    envelope::notification("notifications/subscriptions/acknowledged", &params.end())
}

fn subscription_meta(id: &str) -> String {
    let mut meta = Writer::object();
    meta.raw(SUBSCRIPTION_ID, id);
    meta.end()
}

struct Subscription {
    /// The listen request's id as JSON: the subscription's name in every notification.
    id: Box<str>,
    granted: Vec<TaskId>,
    watch: Watch,
    first: Option<String>,
    /// Tasks whose present state was not told yet.
    pending: Vec<TaskId>,
    /// Tasks that the store did not tell of, and when to ask it again.
    owed: Vec<TaskId>,
    read_again: Option<Instant>,
    upstream: Option<Upstream>,
    leg: Leg,
    honoured: Option<String>,
    beat: Interval,
    closing: CancellationToken,
    ended: bool,
}

enum Woke {
    Closing,
    Task(TaskId),
    Upstream(Option<ListenEvent>),
    Reopen(Duration),
    ReadAgain,
    Beat,
}

impl Subscription {
    fn into_stream(self) -> impl stream::Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut subscription| async {
            let bytes = subscription.next().await?;
            Some((bytes, subscription))
        })
    }

    /// The next bytes for the client's socket; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(sse::event(&first));
        }
        loop {
            if self.ended {
                return None;
            }
            if let Some(id) = self.pending.pop() {
                // Apart: a listener is silent most of its time, and there may be many.
                match Box::pin(self.task(id)).await {
                    Ok(Some(event)) => return Some(event),
                    // It is gone, or nobody can read it.
                    Ok(None) | Err(StoreError::Corrupt(_) | StoreError::Newer) => {}
                    // The mark is gone, the change is not.
                    Err(StoreError::Unavailable(_) | StoreError::Full) => self.owe(id),
                }
                continue;
            }
            match self.wake().await {
                Woke::Closing => return Some(self.end()),
                Woke::Task(id) if self.granted.contains(&id) => self.pending.push(id),
                Woke::Task(_) => {}
                Woke::Upstream(event) => {
                    if let Some(bytes) = self.on_upstream(event) {
                        return Some(bytes);
                    }
                }
                Woke::Reopen(pause) => {
                    self.upstream = Some(Upstream::Reopened(self.leg.open(), pause));
                }
                Woke::ReadAgain => {
                    self.read_again = None;
                    if *self.leg.front.runner.store_answers().borrow() {
                        self.pending.append(&mut self.owed);
                    } else {
                        self.read_again = Some(Instant::now() + READ_AGAIN);
                    }
                }
                Woke::Beat => return Some(sse::COMMENT),
            }
        }
    }

    async fn wake(&mut self) -> Woke {
        let (watch, closing, beat) = (&self.watch, &self.closing, &mut self.beat);
        let (upstream, read_again) = (self.upstream.as_mut(), self.read_again);
        tokio::select! {
            biased;
            () = closing.cancelled() => Woke::Closing,
            id = watch.changed() => Woke::Task(id),
            woke = next_of(upstream) => woke,
            () = at(read_again) => Woke::ReadAgain,
            _ = beat.tick() => Woke::Beat,
        }
    }

    fn owe(&mut self, id: TaskId) {
        if !self.owed.contains(&id) {
            self.owed.push(id);
        }
        self.read_again = Some(Instant::now() + READ_AGAIN);
    }

    /// A task's state as of now; `None` where there is none any more. The stream stays open while the
    /// store is away.
    async fn task(&mut self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        let front = &self.leg.front;
        let Some(loaded) = front.find_by_id(id, &self.leg.caller).await? else {
            return Ok(None);
        };
        let ledger = front.runner.ledger();
        let kept = ledger.load_kept(&loaded.task).await?;
        let kept = kept
            .as_deref()
            .and_then(|bytes| std::str::from_utf8(bytes).ok());
        let params = view::notification_params(&loaded.task, kept, &self.id, ledger.now_ms());
        let event = sse::event(&envelope::notification("notifications/tasks", &params));
        Ok(Some(event))
    }

    fn on_upstream(&mut self, event: Option<ListenEvent>) -> Option<Bytes> {
        match event {
            Some(ListenEvent::Notification { method, params }) => {
                let params = self.stamped(params.as_deref())?;
                Some(sse::event(&envelope::notification(&method, &params)))
            }
            Some(ListenEvent::Acknowledged(honoured)) => {
                let reopened = self.upstream.take();
                let Some(Upstream::Reopened(events, pause)) = reopened else {
                    self.upstream = reopened;
                    return None;
                };
                self.upstream = Some(Upstream::Open {
                    events,
                    since: Instant::now(),
                    pause,
                });
                // At first it may have come too late to be passed on.
                self.honoured.get_or_insert(honoured);
                Some(self.changed_meanwhile())
            }
            Some(ListenEvent::Ended) | None => {
                let now = Instant::now();
                let lost = self.upstream.as_ref();
                let pause = lost.map_or(REOPEN_PAUSE, |lost| lost.next_pause(now));
                self.upstream = Some(Upstream::Lost {
                    again: now + pause,
                    pause,
                });
                None
            }
        }
    }

    /// The notification's params with the client's subscription id and no other change.
    fn stamped(&self, params: Option<&RawValue>) -> Option<String> {
        let Some(params) = params else {
            return Some(format!(r#"{{"_meta":{}}}"#, subscription_meta(&self.id)));
        };
        let object = Object::parse(params.get()).ok()?;
        let meta = match object.get("_meta").filter(|raw| is_object(raw)) {
            Some(meta) => set(meta.get(), SUBSCRIPTION_ID, &self.id).ok()?,
            None => subscription_meta(&self.id),
        };
        if object.is_empty() {
            return Some(prepend("{}", "_meta", &meta));
        }
        set(params.get(), "_meta", &meta).ok()
    }

    /// One change of each granted kind: any of them may have been missed while the leg was lost.
    fn changed_meanwhile(&self) -> Bytes {
        let honoured = self
            .honoured
            .as_deref()
            .and_then(|json| Object::parse(json).ok());
        let honoured = honoured.unwrap_or_default();
        let mut out = Vec::new();
        for (key, method) in [
            ("toolsListChanged", "notifications/tools/list_changed"),
            ("promptsListChanged", "notifications/prompts/list_changed"),
            (
                "resourcesListChanged",
                "notifications/resources/list_changed",
            ),
        ] {
            if honoured.get(key).is_some_and(|raw| raw.get() == "true")
                && let Some(params) = self.stamped(None)
            {
                out.extend_from_slice(&sse::event(&envelope::notification(method, &params)));
            }
        }
        let uris = honoured.get("resourceSubscriptions");
        let uris: Vec<&RawValue> = uris
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        for uri in uris.into_iter().filter_map(string) {
            let mut params = Writer::object();
            params
                .raw("_meta", &subscription_meta(&self.id))
                .str("uri", &uri);
            let event = envelope::notification("notifications/resources/updated", &params.end());
            out.extend_from_slice(&sse::event(&event));
        }
        if out.is_empty() {
            sse::COMMENT
        } else {
            out.into()
        }
    }

    /// The server's own end of the subscription (subscriptions, Graceful Closure; cancellation).
    fn end(&mut self) -> Bytes {
        self.ended = true;
        let mut params = Writer::object();
        params
            .raw("_meta", &subscription_meta(&self.id))
            .raw("requestId", &self.id)
            .str("reason", "The server is shutting down");
        let cancelled = envelope::notification("notifications/cancelled", &params.end());
        let mut result = Writer::object();
        result
            .str("resultType", "complete")
            .raw("_meta", &subscription_meta(&self.id));
        let completed = Rpc::result(&self.id, &result.end());
        [sse::event(&cancelled), sse::event(&completed.json)]
            .concat()
            .into()
    }
}

async fn next_of(upstream: Option<&mut Upstream>) -> Woke {
    match upstream {
        Some(Upstream::Open { events, .. } | Upstream::Reopened(events, _)) => {
            Woke::Upstream(events.next().await)
        }
        Some(Upstream::Lost { again, pause }) => {
            let pause = *pause;
            tokio::time::sleep_until(*again).await;
            Woke::Reopen(pause)
        }
        None => std::future::pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
