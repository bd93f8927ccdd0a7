//! `events/subscribe` and `events/unsubscribe`: the webhook subscriptions of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::look::{EventLooker, TASKS_MAX};
use super::request::{
    EventFilter, EventRequest, EventStart, callback_failed, no_subscription, no_webhooks,
    not_permitted, too_many_challenges, too_many_looks, too_many_subscriptions,
};
use super::state::{EventWebhooks, Events};
use super::subscribe_request::{SubscribeRequest, callback, not_a_callback};
use crate::base::utc::rfc3339;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::Rpc;
use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, Writer};
use crate::notify;
use crate::runner::Runner;
use crate::store::StoreError;
use crate::store::ledger::ApplyError;
use crate::task::events::EventMark;
use crate::task::events::position::EventPosition;
use crate::task::events::replay::{Replay, ReplayTo};
use crate::task::events::subscriptions::{Subscription, Subscriptions, TooManySubscriptions};
use crate::task::id::TaskId;
use crate::task::notices::Notices;
use crate::task::state::Task;
use crate::telemetry::repeats::OF_OUTAGE;

/// The records that are read and changed at the same time.
const AT_ONCE: usize = 16;

/// Why there is no subscription.
enum Refusal {
    Said(RpcError),
    Store(StoreError),
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self::Said(error)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The state of its subscription that a client receives.
struct Subscribed {
    subscription: Subscription,
    cursor: String,
    truncated: bool,
}

/// The webhooks of this client. Only a client that has proved who it is may have any: a credential that raincheck did not
/// check may be anything that its sender made up.
pub(super) fn webhooks_of<'e>(events: &'e Events, by: &Requester) -> Option<&'e EventWebhooks> {
    events.webhooks.as_ref().filter(|_| by.identity.is_some())
}

/// `looker`: looks for this client at the tasks that a filter chooses.
pub(super) async fn subscribe(
    id: &str,
    looker: impl FnOnce(EventFilter) -> EventLooker,
    params: &Object<'_>,
) -> Rpc {
    let looker = looker(EventFilter::default());
    answered(id, subscribed(looker, params).await.map(|it| it.said()))
}

pub(super) async fn unsubscribe(
    id: &str,
    looker: impl FnOnce(EventFilter) -> EventLooker,
    params: &Object<'_>,
) -> Rpc {
    let looker = looker(EventFilter::default());
    answered(id, unsubscribed(&looker, params).await)
}

fn answered(id: &str, result: Result<String, Refusal>) -> Rpc {
    match result {
        Ok(result) => Rpc::result(id, &result),
        Err(Refusal::Said(error)) => Rpc::error(id, &error),
        Err(Refusal::Store(error)) => {
            tracing::warn!(name: OF_OUTAGE, %error, "the store did not answer a subscription to events");
            Rpc::store_unavailable(id)
        }
    }
}

async fn subscribed(mut looker: EventLooker, params: &Object<'_>) -> Result<Subscribed, Refusal> {
    let at = looker.asked_at();
    let now_ms = at.now_ms;
    let asked;
    (looker.filter, asked) = EventRequest::read(params, now_ms)?;
    let (looker, filter) = (&looker, &looker.filter);
    let webhooks = allowed(looker)?;
    let wanted = SubscribeRequest::read(params)?;
    let caller = &looker.by.caller;
    let key = filter.key(caller, &wanted.url)?;
    let receiver = key.receiver();
    let floor_ms = asked.age_ms_max.map_or(0, |age| now_ms.saturating_sub(age));
    let since_ms = match &asked.start {
        EventStart::After(position) => position.whole_ms().max(floor_ms),
        EventStart::Now | EventStart::Unreadable => now_ms,
    };
    let expires_ms = now_ms.saturating_add(wanted.lives_ms);
    let mut new = Subscription::new(key, wanted.secret, since_ms, expires_ms);
    new.scopes = scopes_of(&looker.by);

    let before = webhooks.store.of(caller).await?;
    if !before.has_room(receiver, now_ms) {
        return Err(too_many_subscriptions().into());
    }
    verified(webhooks, looker, &before, &new, now_ms).await?;
    // From here on the client hears that it has subscribed, so the turn comes first.
    let turn = looker.events.look_turn(*caller).await;
    let _turn = turn.ok_or_else(too_many_looks)?;
    let kept_ms = looker.asked_at().now_ms;
    new.expires_ms = kept_ms.saturating_add(wanted.lives_ms);
    let change = webhooks.store.change(caller, kept_ms, |all| {
        let was_live = all.find(receiver, kept_ms).is_some();
        let kept = all.subscribe(new.clone(), kept_ms)?;
        Ok((kept, all.clone(), was_live))
    });
    let (mut subscription, all, was_live) = change
        .await?
        .map_err(|_: TooManySubscriptions| too_many_subscriptions())?;
    // What ended while the receiver was asked is told, too.
    let replay = Arc::new(ReplayTo {
        receiver,
        after: match &asked.start {
            EventStart::After(position) => position.clone(),
            EventStart::Now | EventStart::Unreadable => EventPosition::at(0),
        },
        from_ms: floor_ms.max(subscription.since_ms.saturating_add(1)),
    });
    let has_replayed = AtomicBool::new(false);
    let put = put_on_tasks(looker, &all, &replay, &has_replayed).await;
    let is_cut = put.unwrap_or_else(|error| {
        tracing::warn!(name: OF_OUTAGE, %error, "a new subscription may not hear of tasks that are open");
        true
    });
    if was_live && has_replayed.into_inner() {
        let change = webhooks.store.change(caller, kept_ms, |all| {
            all.replays(receiver, kept_ms);
            all.find(receiver, kept_ms).cloned()
        });
        subscription = change.await.ok().flatten().unwrap_or(subscription);
    }
    let misses = match &asked.start {
        EventStart::Now => false,
        EventStart::Unreadable => true,
        EventStart::After(position) => {
            floor_ms > position.until_ms() || position.has_gap(looker.kept_ms(), at.visible_ms)
        }
    };
    Ok(Subscribed {
        cursor: subscription.cursor(kept_ms).encode(),
        truncated: is_cut || misses && !was_live,
        subscription,
    })
}

fn allowed(looker: &EventLooker) -> Result<&EventWebhooks, RpcError> {
    if looker.events.webhooks.is_none() {
        return Err(no_webhooks());
    }
    webhooks_of(&looker.events, &looker.by).ok_or_else(not_permitted)
}

/// The client's scopes that at least one rule checks.
fn scopes_of(by: &Requester) -> Vec<Box<str>> {
    let has = |wanted: &&str| {
        let identity = by.identity.as_ref();
        identity.is_some_and(|identity| identity.scopes.iter().any(|scope| &**scope == *wanted))
    };
    by.rules.scopes().filter(has).map(Into::into).collect()
}

/// Has the receiver show that it wants messages from this client, if it has not shown it before.
async fn verified(
    webhooks: &EventWebhooks,
    looker: &EventLooker,
    before: &Subscriptions,
    new: &Subscription,
    now_ms: u64,
) -> Result<(), RpcError> {
    // Also for an address that was verified before: the settings may allow fewer addresses by now.
    let receiver = webhooks.callbacks.receiver(new, now_ms);
    let receiver = receiver.ok_or_else(not_a_callback)?;
    if before.has_verified(&new.key.url, now_ms) {
        return Ok(());
    }
    let turn = webhooks.challenge_turn(looker.by.caller, &receiver.host);
    let _turn = turn.await.ok_or_else(too_many_challenges)?;
    let verifying = notify::verify(&receiver, now_ms).await;
    verifying.map_err(|failure| callback_failed(failure.0))
}

/// Puts the caller's subscriptions on its open tasks, and has the new one receive the events that it asked for. True:
/// the caller has more tasks than were looked at.
async fn put_on_tasks(
    looker: &EventLooker,
    all: &Subscriptions,
    replay: &Arc<ReplayTo>,
    has_replayed: &AtomicBool,
) -> Result<bool, StoreError> {
    let mut places = looker.places().await?;
    let is_cut = places.len() > TASKS_MAX;
    places.truncate(TASKS_MAX);
    let runner: &Arc<Runner> = &looker.proxy.runner;
    let put = stream::iter(places).map(|(_, id): (u64, TaskId)| async move {
        let loaded = match runner.ledger().load(id).await {
            Ok(Some(loaded)) if loaded.task.belongs_to(&looker.by.caller) => loaded,
            // A client may name the task of another caller, and one unreadable record must not hide the others.
            Ok(_) | Err(StoreError::Corrupt(_) | StoreError::Newer | StoreError::UnknownKey) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if is_replayed(replay, &loaded.task) {
            has_replayed.store(true, Ordering::Relaxed);
        } else if loaded.task.is_ended() {
            return Ok(());
        }
        let replay = Replay::To(Arc::clone(replay));
        match runner.subscribe(&loaded, all, replay).await {
            Err(ApplyError::Store(error)) => Err(error),
            // The other errors mean that the task is gone, or has nothing to change.
            Ok(()) | Err(_) => Ok(()),
        }
    });
    put.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(is_cut)
}

/// Returns `true` if the subscription asks for the present state of the task, and was not notified of it.
fn is_replayed(replay: &ReplayTo, task: &Task) -> bool {
    EventMark::of(task).is_some_and(|mark| replay.has(mark))
        && task
            .notices_of(replay.receiver)
            .is_none_or(Notices::may_replay)
}

async fn unsubscribed(looker: &EventLooker, params: &Object<'_>) -> Result<String, Refusal> {
    // A client that may not subscribe has no subscription, and gets the answer for that.
    let webhooks = webhooks_of(&looker.events, &looker.by).ok_or_else(no_subscription)?;
    let now_ms = looker.asked_at().now_ms;
    let (filter, _) = EventRequest::read(params, now_ms)?;
    let caller = &looker.by.caller;
    let receiver = filter.key(caller, &callback(params)?)?.receiver();
    let end = |all: &mut Subscriptions| all.end(receiver, now_ms);
    if !webhooks.store.change(caller, now_ms, end).await? {
        return Err(no_subscription().into());
    }
    let mut out = Writer::object();
    out.str("resultType", "complete");
    Ok(out.end())
}

impl Subscribed {
    fn said(&self) -> String {
        let mut out = Writer::with_capacity(256);
        out.str("resultType", "complete")
            .str("id", &self.subscription.key.id)
            .str("refreshBefore", &rfc3339(self.subscription.expires_ms))
            .str("cursor", &self.cursor)
            .raw("truncated", if self.truncated { "true" } else { "false" });
        out.end()
    }
}
