//! The webhook subscriptions of one caller (`events/subscribe`): the part that a store keeps of them, and the
//! receivers of a task's events. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::position::EventPosition;
use super::replay::WantedNotices;
use super::{EventMark, NAME};
use crate::task::digest::Digest;
use crate::task::id::{Caller, TaskId};
use crate::task::notices::{NoticeState, Notices, ReceiverId};
use crate::task::state::Task;

/// The most subscriptions of one caller. Each is on the record of each open task that it is for.
pub const SUBSCRIPTIONS_MAX: usize = 32;

/// The time that an event is tried again.
const RETRY_MS: u64 = 15 * 60 * 1000;

/// Upper bound of the time after [`RETRY_MS`] at which the last attempt ends, with the commits around it.
const LATE_MS: u64 = 2 * 60 * 1000;

/// Upper bound of the difference between the clocks of replicas.
const SKEW_MS: u64 = 5_000;

/// The time that the secret before signs beside the new one, so that a message that is under way can be verified
/// under either.
const PREVIOUS_MS: u64 = 5 * 60 * 1000;

/// A subscription. Its id, its receiver and its arguments never change; renewing it changes the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    pub key: SubscriptionKey,
    pub secret: SecretText,
    pub expires_ms: u64,
    /// The scopes that the client had, of those that any rule wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Box<str>>,
    /// The subscription receives no event until this time.
    pub since_ms: u64,
    /// The time at which the subscription last requested earlier events.
    #[serde(default)]
    replayed_ms: u64,
    /// The secret before, and until when it signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<(SecretText, u64)>,
}

/// The parts that identify a subscription, and its id, which follows from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionKey {
    pub id: Box<str>,
    pub url: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<Box<str>>,
}

/// The secret that signs, as the client wrote it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(Box<str>);

impl SecretText {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The caller has as many subscriptions as a caller may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManySubscriptions;

/// The subscriptions of one caller, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscriptions(Vec<Subscription>);

impl SubscriptionKey {
    /// The id is the same for the same caller, address and arguments, on every replica. It authorises nothing.
    pub fn new(caller: &Caller, url: &str, task: Option<TaskId>, tool: Option<&str>) -> Self {
        let by = u128::from_be_bytes(*caller.as_bytes()).to_string();
        let task_text = task.map(|id| id.to_string()).unwrap_or_default();
        // Without a tool is something else than a tool without a name.
        let has_tool = if tool.is_some() { "tool" } else { "" };
        let tool_text = tool.unwrap_or_default();
        let parts = [
            "subscription",
            &by,
            url,
            NAME,
            &task_text,
            has_tool,
            tool_text,
        ];
        let number = u128::from_be_bytes(*Digest::of(&parts).as_bytes());
        Self {
            id: format!("sub_{number:032x}").into(),
            url: url.into(),
            task,
            tool: tool.map(Into::into),
        }
    }

    pub fn receiver(&self) -> ReceiverId {
        ReceiverId::of_subscription(&self.id)
    }

    fn admits(&self, task: &Task) -> bool {
        self.task.is_none_or(|id| id == task.id)
            && self.tool.as_deref().is_none_or(|tool| tool == &*task.name)
    }
}

impl Subscription {
    pub fn new(key: SubscriptionKey, secret: SecretText, since_ms: u64, expires_ms: u64) -> Self {
        Self {
            key,
            secret,
            expires_ms,
            scopes: Vec::new(),
            since_ms,
            replayed_ms: 0,
            previous: None,
        }
    }

    /// The secrets that sign now, the newest first.
    pub fn secrets(&self, now_ms: u64) -> impl Iterator<Item = &SecretText> {
        let previous = self.previous.as_ref();
        let previous = previous.filter(|(_, until_ms)| now_ms < *until_ms);
        std::iter::once(&self.secret).chain(previous.map(|(secret, _)| secret))
    }

    /// Returns a place that a client may keep: every event until then was sent, or is tried no more.
    pub fn cursor(&self, now_ms: u64) -> EventPosition {
        let settled_ms = now_ms.saturating_sub(RETRY_MS + LATE_MS);
        if settled_ms < self.replayed_ms {
            // What was told again may lie anywhere, and is still tried.
            return EventPosition::at(self.since_ms);
        }
        EventPosition::at(self.since_ms.max(settled_ms))
    }

    /// Returns `true` if the event is certainly from before the subscription.
    pub fn began_after(&self, mark: EventMark) -> bool {
        // The two times may be of two replicas, whose clocks differ.
        mark.at_ms.saturating_add(SKEW_MS) < self.since_ms
    }

    /// `needed`: the scopes that the rule of the tool wants.
    fn is_for(&self, task: &Task, needed: &[Box<str>]) -> bool {
        self.key.admits(task) && needed.iter().all(|scope| self.scopes.contains(scope))
    }
}

impl Subscriptions {
    /// Those that have not expired.
    fn live(&self, now_ms: u64) -> impl Iterator<Item = &Subscription> {
        self.0.iter().filter(move |it| now_ms < it.expires_ms)
    }

    pub fn find(&self, receiver: ReceiverId, now_ms: u64) -> Option<&Subscription> {
        self.live(now_ms).find(|it| it.key.receiver() == receiver)
    }

    /// Returns `true` if the receiver at this address has shown that it accepts messages for this caller: nothing is
    /// kept before.
    pub fn has_verified(&self, url: &str, now_ms: u64) -> bool {
        self.live(now_ms).any(|it| &*it.key.url == url)
    }

    /// Returns `true` if there is room for one more subscription of this receiver.
    pub fn has_room(&self, receiver: ReceiverId, now_ms: u64) -> bool {
        let others = self.live(now_ms);
        let others = others.filter(|it| it.key.receiver() != receiver);
        others.count() < SUBSCRIPTIONS_MAX
    }

    /// Adds the subscription, or renews the one that it is. Gives what is kept now.
    pub fn subscribe(
        &mut self,
        mut new: Subscription,
        now_ms: u64,
    ) -> Result<Subscription, TooManySubscriptions> {
        // No job removes what has expired: each change of the list does.
        self.0.retain(|it| now_ms < it.expires_ms);
        if !self.has_room(new.key.receiver(), now_ms) {
            return Err(TooManySubscriptions);
        }
        new.replayed_ms = now_ms;
        if let Some(place) = self.0.iter().position(|it| it.key == new.key) {
            let before = self.0.remove(place);
            // A renewal must not move the begin on, or events that are still to be sent would count as too early.
            new.since_ms = before.since_ms;
            new.replayed_ms = before.replayed_ms;
            // A renewal under the same secret must not end the time of the one before it.
            new.previous = if before.secret == new.secret {
                before.previous
            } else {
                Some((before.secret, now_ms.saturating_add(PREVIOUS_MS)))
            };
        }
        self.0.push(new.clone());
        Ok(new)
    }

    /// Notes that earlier events are sent to the subscription now.
    pub fn replays(&mut self, receiver: ReceiverId, now_ms: u64) {
        let mut all = self.0.iter_mut();
        if let Some(it) = all.find(|it| it.key.receiver() == receiver) {
            it.replayed_ms = it.replayed_ms.max(now_ms);
        }
    }

    /// Removes the subscription. False: there is none.
    pub fn end(&mut self, receiver: ReceiverId, now_ms: u64) -> bool {
        // Removed before the count, so that the end of an expired subscription is reported as that of none.
        self.0.retain(|it| now_ms < it.expires_ms);
        let before = self.0.len();
        self.0.retain(|it| it.key.receiver() != receiver);
        self.0.len() < before
    }

    /// When the last of them expires. `None`: there is none.
    pub fn expires_ms(&self) -> Option<u64> {
        self.0.iter().map(|it| it.expires_ms).max()
    }

    /// Returns the notices of these subscriptions for the record of a task of this caller. `needed`: the scopes that
    /// the rule of its tool wants.
    pub fn notices_of(&self, task: &Task, needed: &[Box<str>], now_ms: u64) -> Vec<WantedNotices> {
        let wanted = self.live(now_ms).filter(|it| it.is_for(task, needed));
        let notices = wanted.map(|it| WantedNotices {
            notices: Notices::new(it.key.receiver(), NoticeState::ALL.to_vec(), RETRY_MS),
            since_ms: it.since_ms,
        });
        notices.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::events::EventMark;
    use crate::task::machine::tests::{NOW, task};
    use crate::task::state::Leg;

    fn caller(byte: u8) -> Caller {
        Caller::from_bytes([byte; 16])
    }

    fn key(tool: Option<&str>) -> SubscriptionKey {
        SubscriptionKey::new(&caller(1), "https://hooks.example/in", None, tool)
    }

    fn of(key: SubscriptionKey, secret: &str, expires_ms: u64) -> Subscription {
        Subscription::new(key, SecretText::new(secret), NOW, expires_ms)
    }

    #[test]
    fn what_makes_a_subscription_the_same_is_in_its_id() {
        let id = TaskId::from_bytes([7; 16]);
        let url = "https://hooks.example/in";
        let ids = [
            key(None).id,
            key(Some("")).id,
            key(Some("tool")).id,
            SubscriptionKey::new(&caller(1), url, Some(id), None).id,
            SubscriptionKey::new(&caller(2), url, None, None).id,
            SubscriptionKey::new(&caller(1), "https://hooks.example/", None, None).id,
        ];
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert_eq!(key(None), key(None));
    }

    #[test]
    fn a_renewal_keeps_its_place_and_signs_with_both_secrets_for_a_while() {
        let mut all = Subscriptions::default();
        all.subscribe(of(key(None), "old", NOW + 1_000), NOW)
            .unwrap();
        let mut again = of(key(None), "new", NOW + 900_000);
        again.since_ms = NOW + 500;
        let kept = all.subscribe(again, NOW + 500).unwrap();
        assert_eq!(kept.since_ms, NOW, "where it began");
        let signs = |now_ms| {
            kept.secrets(now_ms)
                .map(SecretText::expose)
                .collect::<Vec<_>>()
        };
        assert_eq!(signs(NOW + 600), ["new", "old"]);
        assert_eq!(signs(NOW + 500 + PREVIOUS_MS), ["new"]);
        assert!(all.has_verified(&kept.key.url, NOW + 2_000));
        assert!(!all.has_verified(&kept.key.url, NOW + 900_000));
        let read = serde_json::to_vec(&all).unwrap();
        assert_eq!(serde_json::from_slice::<Subscriptions>(&read).unwrap(), all);
        assert!(!format!("{all:?}").contains("old"), "no secret is shown");
    }

    #[test]
    fn one_caller_has_so_many_and_those_that_expired_leave_room() {
        let mut all = Subscriptions::default();
        for number in 0..SUBSCRIPTIONS_MAX {
            let tool = number.to_string();
            all.subscribe(of(key(Some(&tool)), "s", NOW + 1_000), NOW)
                .unwrap();
        }
        let one_more = of(key(None), "s", NOW + 9_000);
        let refused = all.subscribe(one_more.clone(), NOW);
        assert_eq!(refused.unwrap_err(), TooManySubscriptions);
        all.subscribe(of(key(Some("0")), "s", NOW + 1_000), NOW)
            .unwrap();
        all.subscribe(one_more, NOW + 1_000).unwrap();
        assert_eq!(all.0.len(), 1);
        assert!(all.end(key(None).receiver(), NOW + 1_000));
        assert!(!all.end(key(None).receiver(), NOW + 1_000));
        assert_eq!(all.expires_ms(), None);
    }

    #[test]
    fn a_task_names_those_that_are_for_it() {
        let task = task(Leg::Sent(1), true);
        let (own, other) = (task.id, TaskId::from_bytes([8; 16]));
        let url = "https://hooks.example/in";
        let of_task = |id| SubscriptionKey::new(&caller(1), url, Some(id), None);
        let mut all = Subscriptions::default();
        for key in [
            key(None),
            key(Some("tool")),
            key(Some("x")),
            of_task(own),
            of_task(other),
        ] {
            all.subscribe(of(key, "s", NOW + 1_000), NOW).unwrap();
        }
        let heard = |needed: &[Box<str>], now_ms| {
            let all = all.notices_of(&task, needed, now_ms);
            all.iter().map(|it| it.notices.receiver).collect::<Vec<_>>()
        };
        let wanted = [key(None), key(Some("tool")), of_task(own)].map(|it| it.receiver());
        assert_eq!(heard(&[], NOW), wanted);
        assert_eq!(heard(&["run".into()], NOW), []);
        assert_eq!(heard(&[], NOW + 1_000), []);
    }

    #[test]
    fn a_cursor_lies_before_all_that_is_tried_and_not_before_the_beginning() {
        let subscription = of(key(None), "s", u64::MAX);
        let at = |at_ms| EventMark { at_ms, key: 1 };
        let young = subscription.cursor(NOW + 1_000);
        assert!(!young.is_news(at(NOW)) && young.is_news(at(NOW + 1)));
        let now_ms = NOW + 10 * RETRY_MS;
        let old = subscription.cursor(now_ms);
        assert!(old.is_news(at(now_ms - RETRY_MS)));
        assert!(!old.is_news(at(now_ms - RETRY_MS - LATE_MS)));
    }

    #[test]
    fn a_cursor_waits_for_what_is_told_again() {
        let mut all = Subscriptions::default();
        let at = |at_ms| EventMark { at_ms, key: 1 };
        let receiver = key(None).receiver();
        let long_ago = 1;
        let mut new = of(key(None), "s", u64::MAX);
        new.since_ms = long_ago;
        all.subscribe(new.clone(), NOW).unwrap();
        let cursor =
            |all: &Subscriptions, now_ms| all.find(receiver, now_ms).unwrap().cursor(now_ms);
        let over_ms = NOW + RETRY_MS + LATE_MS;
        assert!(cursor(&all, over_ms - 1).is_news(at(long_ago + 1)));
        assert!(!cursor(&all, over_ms).is_news(at(long_ago + 1)));
        assert!(cursor(&all, over_ms).is_news(at(NOW + 1)));
        // Renewed, it keeps its place, until it has something told again.
        all.subscribe(new, over_ms).unwrap();
        assert!(!cursor(&all, over_ms).is_news(at(long_ago + 1)));
        all.replays(receiver, over_ms);
        assert!(cursor(&all, over_ms).is_news(at(long_ago + 1)));
    }

    #[test]
    fn only_what_is_surely_from_before_a_subscription_is_left_out() {
        let subscription = of(key(None), "s", u64::MAX);
        let began_after = |at_ms| subscription.began_after(EventMark { at_ms, key: 1 });
        let since_ms = subscription.since_ms;
        assert!(began_after(since_ms - SKEW_MS - 1));
        assert!(!began_after(since_ms - SKEW_MS) && !began_after(since_ms + 1));
    }
}
