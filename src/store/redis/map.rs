//! Which server holds which slot.

use std::sync::{Arc, MutexGuard};

use redis::Client;
use redis::aio::MultiplexedConnection;

use super::keys::SLOTS;
use crate::base::lock::Mutex;

/// One Redis server.
pub(super) struct RedisServer {
    /// Its address, which identifies it in logs and in the map.
    pub(super) name: String,
    /// A new generation means: connect again, although the name is the same.
    pub(super) generation: u64,
    pub(super) client: Client,
    /// The connection for questions about the topology while it is in doubt. It saves a handshake for each question.
    pub(super) kept: Mutex<Option<MultiplexedConnection>>,
}

/// The servers and their slots.
pub(super) struct Map {
    pub(super) servers: Vec<Arc<RedisServer>>,
    /// First slot, last slot, and the index of their server in `servers`.
    pub(super) ranges: Vec<(u16, u16, usize)>,
}

impl Map {
    /// One server holds all slots.
    pub(super) fn of_one(server: RedisServer) -> Self {
        Self {
            servers: vec![Arc::new(server)],
            ranges: vec![(0, SLOTS - 1, 0)],
        }
    }

    pub(super) fn server_of(&self, slot: u16) -> Option<&Arc<RedisServer>> {
        let holds = |range: &&(u16, u16, usize)| (range.0..=range.1).contains(&slot);
        let (_, _, server) = self.ranges.iter().find(holds)?;
        self.servers.get(*server)
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = |(a, b): (&Arc<RedisServer>, &Arc<RedisServer>)| a.is(b);
        self.ranges == other.ranges
            && self.servers.len() == other.servers.len()
            && self.servers.iter().zip(&other.servers).all(same)
    }
}

impl RedisServer {
    pub(super) fn kept(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        self.kept.lock()
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name && self.generation == other.generation
    }
}

/// The most common answer. Of equally common answers the first one counts.
pub(super) fn most_common<T: PartialEq>(answers: Vec<T>) -> Option<T> {
    let mut best: Option<(usize, usize)> = None;
    for (at, answer) in answers.iter().enumerate() {
        let count = answers.iter().filter(|other| *other == answer).count();
        if best.is_none_or(|(most, _)| count > most) {
            best = Some((count, at));
        }
    }
    let (_, at) = best?;
    answers.into_iter().nth(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_say_counts() {
        assert_eq!(most_common(vec![1, 2, 2]), Some(2));
        assert_eq!(most_common(vec![1, 2]), Some(1));
        assert_eq!(most_common(Vec::<u8>::new()), None);
    }
}
