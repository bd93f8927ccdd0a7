//! The names of keys in Redis: all keys of one task are in one bucket, and a bucket is in one slot.
//!
//! The namespace is part of every key, because two services on one Redis must never claim each other's tasks. The hash
//! tag keeps a bucket together on a cluster.

use std::fmt;
use std::sync::Arc;

use crate::mcp::hex;
use crate::store::kv::Name;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};

/// The name that separates this service's tasks from those of other services on the same Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace(Box<str>);

impl Namespace {
    /// One to 64 characters of `A-Z a-z 0-9 . _ -`. None of them has a meaning in a key, a pattern or an access list.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let right = (1..=64).contains(&text.len()) && text.bytes().all(plain);
        right.then(|| Self(text.into()))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bucket of a task among `buckets`.
pub fn bucket_of(id: TaskId, buckets: u16) -> u16 {
    bucket_of_text(id.text(&mut TaskId::text_buffer()), buckets)
}

fn bucket_of_text(text: &str, buckets: u16) -> u16 {
    match buckets {
        // The usual case needs no sum.
        0 | 1 => 0,
        buckets => crc16(text.as_bytes()) % buckets,
    }
}

/// Most names are no longer than this, without their prefix.
const NAME_LENGTH: usize = 48;

/// The slot of a cluster that holds a key, computed from the text in its first braces.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag);
    // Redis hashes the whole key where the braces are empty.
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) % SLOTS
}

/// The names of one namespace.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// The beginnings of the keys of each bucket. A commit names six keys, so the prefixes are written once.
    prefixes: Arc<[Box<str>]>,
    live: Box<str>,
    meta: Box<str>,
}

impl Keys {
    /// One bucket on one server, [`BUCKETS`] on a cluster.
    pub(super) fn new(namespace: &Namespace, buckets: u16) -> Self {
        let prefix = |bucket| format!("{{{namespace}:{bucket:02}}}:").into();
        Self {
            prefixes: (0..buckets).map(prefix).collect(),
            live: format!("{{{namespace}:live}}").into(),
            meta: format!("{{{namespace}:meta}}").into(),
        }
    }

    pub(super) fn count(&self) -> u16 {
        u16::try_from(self.prefixes.len()).unwrap_or(u16::MAX)
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.count()
    }

    pub(super) fn bucket(&self, id: TaskId) -> u16 {
        bucket_of(id, self.count())
    }

    fn named(&self, bucket: u16, rest: &[&str]) -> String {
        let prefix = self.prefixes.get(usize::from(bucket));
        let prefix = prefix.map_or("", |prefix| &**prefix);
        let mut name = String::with_capacity(prefix.len() + NAME_LENGTH);
        name.push_str(prefix);
        for part in rest {
            name.push_str(part);
        }
        name
    }

    fn of_task(&self, kind: &str, id: TaskId) -> String {
        let mut buffer = TaskId::text_buffer();
        self.named(self.bucket(id), &[kind, id.text(&mut buffer)])
    }

    pub(super) fn task(&self, id: TaskId) -> String {
        self.of_task("t:", id)
    }

    pub(super) fn request(&self, id: TaskId) -> String {
        self.of_task("q:", id)
    }

    pub(super) fn result(&self, id: TaskId, fence: Fence) -> String {
        format!("{}:{}", self.of_task("x:", id), fence.0)
    }

    pub(super) fn index(&self, bucket: u16, incarnation: &Incarnation) -> String {
        self.named(bucket, &["o:", incarnation.as_str()])
    }

    /// The listed tasks of a caller, or a session.
    pub(super) fn list(&self, bucket: u16, caller: &Caller) -> String {
        self.named(bucket, &["c:", &hex::encode(caller.as_bytes())])
    }

    /// Values and logs of one digest are in one bucket.
    pub(super) fn note(&self, name: Name) -> String {
        let digest = hex::encode(&name.digest);
        let bucket = self.note_bucket(&digest);
        self.named(bucket, &["n:", &name.kind.letter().to_string(), &digest])
    }

    /// The change log in the bucket of a value or a log.
    pub(super) fn note_log(&self, name: Name) -> String {
        self.log(self.note_bucket(&hex::encode(&name.digest)))
    }

    fn note_bucket(&self, digest: &str) -> u16 {
        bucket_of_text(digest, self.count())
    }

    pub(super) fn due(&self, bucket: u16) -> String {
        self.named(bucket, &["due"])
    }

    pub(super) fn log(&self, bucket: u16) -> String {
        self.named(bucket, &["log"])
    }

    /// The last entries of the history.
    pub(super) fn history(&self, bucket: u16) -> String {
        self.named(bucket, &["ended"])
    }

    /// The incarnations, sorted by the end of their leases.
    pub(super) fn live(&self) -> &str {
        &self.live
    }

    /// A key that is never left behind.
    pub(super) fn never(&self) -> String {
        format!("{}:never", self.meta)
    }

    /// The permanent facts of the namespace: the only key without an expiry.
    pub(super) fn meta(&self) -> &str {
        &self.meta
    }
}

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16384;

/// The number of buckets on a cluster: enough to spread evenly over any sensible number of nodes.
pub(super) const BUCKETS: u16 = 64;

/// CRC-16/XMODEM, the one that Redis Cluster uses for its slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::store::kv::Kind;

    #[test]
    fn crc16_is_the_one_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn every_id_has_a_bucket() {
        for _ in 0..1000 {
            let id = TaskId::random();
            assert_eq!(bucket_of(id, 1), 0);
            assert!(bucket_of(id, 64) < 64);
        }
    }

    #[test]
    fn a_namespace_has_nothing_that_means_something_in_a_key() {
        for right in ["a", "weather-mcp", "A.b_c-9", &"x".repeat(64)] {
            assert!(Namespace::parse(right).is_some(), "{right}");
        }
        for wrong in ["", "a:b", "a{b", "a}", "a*", "a b", "ü", &"x".repeat(65)] {
            assert!(Namespace::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_slot_is_the_one_of_redis_cluster() {
        // By the specification of Redis Cluster.
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(
            slot_of("{user1000}.following"),
            slot_of("{user1000}.followers")
        );
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of("foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
    }

    #[test]
    fn the_keys_of_a_task_share_their_slot() {
        let namespace = Namespace::parse("ns").unwrap();
        let keys = Keys::new(&namespace, 1);
        let id = TaskId::random();
        assert_eq!(keys.task(id), format!("{{ns:00}}:t:{id}"));
        assert_eq!(keys.result(id, Fence(7)), format!("{{ns:00}}:x:{id}:7"));
        assert_eq!(keys.log(0), "{ns:00}:log");
        assert_eq!(keys.live(), "{ns:live}");
        let keys = Keys::new(&namespace, BUCKETS);
        for _ in 0..100 {
            let id = TaskId::random();
            let bucket = keys.bucket(id);
            let slot = slot_of(&keys.task(id));
            for other in [
                keys.request(id),
                keys.result(id, Fence(1)),
                keys.due(bucket),
                keys.log(bucket),
                keys.history(bucket),
                keys.index(bucket, &Incarnation::new("a")),
                keys.list(bucket, &Caller::from_bytes([1; 16])),
            ] {
                assert_eq!(slot_of(&other), slot, "{other}");
            }
        }
    }
    #[test]
    fn a_note_is_named_by_its_kind_and_spread_like_tasks() {
        let keys = Keys::new(&Namespace::parse("ns").unwrap(), 1);
        let name = Name {
            kind: Kind::Claim,
            digest: [0xa5; 16],
        };
        assert_eq!(keys.note(name), format!("{{ns:00}}:n:k{}", "a5".repeat(16)));
        let caller = Caller::from_bytes([7; 16]);
        assert_eq!(
            keys.list(0, &caller),
            format!("{{ns:00}}:c:{}", "07".repeat(16))
        );
        let keys = Keys::new(&Namespace::parse("ns").unwrap(), BUCKETS);
        let names = (0..100).map(|n| Name::of(Kind::Claim, &[&n.to_string()]));
        let slots: HashSet<u16> = names.map(|name| slot_of(&keys.note(name))).collect();
        assert!(slots.len() > 20, "{slots:?}");
    }
}
