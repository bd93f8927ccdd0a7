//! `subscriptions/listen` of 2026-07-28: one stream of the changes of raincheck's own tasks and of the
//! changes at the wrapped server that the client asked for.
//!
//! A subscriber holds a dirty mark per task, never a body: the state is read when the client's socket can
//! take it, so that a slow client sees fewer states, and always the newest.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::at_server::{Change, ServerSubscription, Subscriber};
use crate::base::unfold::Unfold;
use crate::downstream::body::Body;
use crate::downstream::inbound::request::Modern;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::{self, Rpc};
use crate::downstream::proxy::Proxy;
use crate::downstream::response_body;
use crate::mcp::envelope;
use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, Writer, is_object, prepend, quote, set};
use crate::mcp::meta::{self, SUBSCRIPTION_ID};
use crate::mcp::sse;
use crate::runner::watch::Watch;
use crate::store::StoreError;
use crate::task::id::{Caller, TaskId};
use crate::task::view;
use crate::upstream::{Credentials, Forwarded};

pub(in crate::downstream) async fn answer(
    proxy: &Arc<Proxy>,
    modern: &Modern<'_>,
    by: &Requester,
    credentials: Option<Credentials>,
) -> Response<Body> {
    let caller = by.caller;
    let id = modern.request.id.get();
    let filter = match Filter::read(&modern.request.params, proxy.live.listen_task_ids_max()) {
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
    let mut watch = proxy.runner.watches().watch(ids.clone());
    let Ok(granted) = granted(proxy, by, ids).await else {
        return Rpc::store_unavailable(id).into_response();
    };
    // Any client can name many ids, so that only granted tasks stay watched.
    watch.keep_only(&granted);
    // The client is sent the present state of each.
    for id in &granted {
        watch.mark(*id);
    }
    // The stream keeps only these parts of the request, so only they count as long as it lasts.
    let kept = id.len() + filter.others.len();
    // This may be the first request to the server: the server's era decides how it is asked.
    let _ = proxy.upstream.era_soon(credentials.clone()).await;
    let subscriber = Subscriber {
        proxy: Arc::clone(proxy),
        caller,
        credentials,
        capabilities: modern.meta.capabilities.get().into(),
    };
    let mut at_server = ServerSubscription::new(subscriber, false);
    at_server.ask_for(filter.others);
    let honoured = at_server.acknowledged().await;
    let acknowledged = acknowledgement(id, filter.task_ids.is_some(), &granted, honoured);
    let subscription = Subscription {
        proxy: Arc::clone(proxy),
        caller,
        shown: by.shows(),
        awaiting: BTreeMap::new(),
        id: id.into(),
        watch,
        first: Some(acknowledged),
        at_server,
        closing: proxy.closing.clone(),
        ended: false,
    };
    let events = Body::events(subscription.into_stream());
    response_body::with_request_size(kept, response::event_stream(events))
}

/// The notifications that a client wants.
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

/// The tasks that exist and belong to the caller, and whose scopes the caller has. Other ids are left out, as if the tasks
/// did not exist.
async fn granted(
    proxy: &Arc<Proxy>,
    by: &Requester,
    ids: Vec<TaskId>,
) -> Result<Vec<TaskId>, StoreError> {
    let mut granted = Vec::new();
    for id in ids {
        if granted.contains(&id) {
            continue;
        }
        let found = proxy.tasks_of(&by.caller).find(id).await?;
        if found.is_some_and(|found| Proxy::lacking_scopes(by, &found.task.name).is_none()) {
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
        .raw("_meta", &meta::of_subscription(id))
        .raw("notifications", &notifications.end());
    envelope::notification("notifications/subscriptions/acknowledged", &params.end())
}

struct Subscription {
    proxy: Arc<Proxy>,
    caller: Caller,
    /// The part of the client's request that the server gets, should this replica have to go on with a call.
    shown: Forwarded,
    /// The tasks that wait for their client, with the time of the change that the client was sent last.
    awaiting: BTreeMap<TaskId, u64>,
    /// The listen request's id as JSON: the subscription's name in every notification.
    id: Box<str>,
    watch: Watch,
    first: Option<String>,
    at_server: ServerSubscription,
    closing: CancellationToken,
    ended: bool,
}

enum Woke {
    Closing,
    Task(TaskId),
    Server(Change),
}

impl Unfold for Subscription {
    type Item = Bytes;

    /// The next bytes for the client's socket; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(sse::event(&first));
        }
        loop {
            if self.ended {
                return None;
            }
            match self.wake().await {
                Woke::Closing => return Some(self.end()),
                // While the store is away, a read would only fail.
                Woke::Task(id) if !*self.proxy.runner.store_answers().borrow() => {
                    self.watch.mark_again(id);
                }
                // Boxed, because there may be many listeners, and most are silent most of the time.
                Woke::Task(id) => match Box::pin(self.task(id)).await {
                    Ok(Some(event)) => return Some(event),
                    // The task is gone, or its record cannot be read.
                    Ok(None)
                    | Err(StoreError::Corrupt(_) | StoreError::Newer | StoreError::UnknownKey) => {}
                    Err(StoreError::Unavailable(_) | StoreError::Full) => self.watch.mark_again(id),
                },
                Woke::Server(Change { method, params }) => {
                    if let Some(params) = self.stamped(params.as_deref()) {
                        return Some(sse::event(&envelope::notification(&method, &params)));
                    }
                }
            }
        }
    }
}

impl Subscription {
    async fn wake(&mut self) -> Woke {
        tokio::select! {
            // The end comes first, or tasks that change all the time would keep the stream open in a drain.
            biased;
            () = self.closing.cancelled() => Woke::Closing,
            id = self.watch.changed() => Woke::Task(id),
            change = self.at_server.next() => Woke::Server(change),
        }
    }

    /// The event with a task's present state. `None`: the task is gone, or nothing is new. The stream stays open while the store is
    /// away.
    async fn task(&mut self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        let tasks = self.proxy.tasks_of(&self.caller).over_stream(&self.shown);
        let Some(whole) = tasks.find_whole(id).await? else {
            return Ok(None);
        };
        if !whole.task.waits_for_client() || self.shown.credentials.is_none() {
            self.awaiting.remove(&id);
        } else {
            // This replica may be able to go on with the call a little later.
            self.watch.mark_again(id);
            let updated_ms = whole.task.updated_ms;
            if self.awaiting.insert(id, updated_ms) == Some(updated_ms) {
                return Ok(None);
            }
        }
        // A later poll may wait for a change, because the client has this state.
        self.proxy.runner.told_states().tell(&whole.task);
        let next_ms = self.proxy.runner.poll_interval_ms(&whole.task);
        let shown = whole.shown(&self.proxy.runner.rules());
        let shown = shown.as_deref();
        let params = view::notification_params(&whole.task, shown, &self.id, next_ms);
        let event = sse::event(&envelope::notification("notifications/tasks", &params));
        Ok(Some(event))
    }

    /// The notification's params with the client's subscription id and no other change.
    fn stamped(&self, params: Option<&RawValue>) -> Option<String> {
        let Some(params) = params else {
            return Some(format!(
                r#"{{"_meta":{}}}"#,
                meta::of_subscription(&self.id)
            ));
        };
        let object = Object::parse(params.get()).ok()?;
        let meta = match object.get("_meta").filter(|raw| is_object(raw)) {
            Some(meta) => set(meta.get(), SUBSCRIPTION_ID, &self.id).ok()?,
            None => meta::of_subscription(&self.id),
        };
        if object.is_empty() {
            return Some(prepend("{}", "_meta", &meta));
        }
        set(params.get(), "_meta", &meta).ok()
    }

    /// The server's own end of the subscription (subscriptions, Graceful Closure; cancellation).
    fn end(&mut self) -> Bytes {
        self.ended = true;
        let mut params = Writer::object();
        params
            .raw("_meta", &meta::of_subscription(&self.id))
            .raw("requestId", &self.id)
            .str("reason", "The server is shutting down");
        let cancelled = envelope::notification("notifications/cancelled", &params.end());
        let mut result = Writer::object();
        result
            .str("resultType", "complete")
            .raw("_meta", &meta::of_subscription(&self.id));
        let completed = Rpc::result(&self.id, &result.end());
        [sse::event(&cancelled), sse::event(&completed.json)]
            .concat()
            .into()
    }
}
