//! Connections that give way when the listener is full: those without a whole request. So a peer that opens
//! connections and asks for nothing, or sends its requests byte by byte, keeps no other peer out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::base::limit_fill::CONNECTIONS;
use crate::base::lock::Mutex;

/// The time that a connection that gives way can write its remaining bytes.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// The time that a connection may take for its first request before it can give way, and for which it may be idle
/// after one: a burst of clients is no flood.
const UNDISTURBED_MS: u64 = 500;

/// One in so many connections gives way at once, so that a flood of new ones costs one look for that many of them.
const PART: usize = 16;

/// The open connections of a listener.
#[derive(Debug)]
pub(super) struct OpenConnections {
    open: Mutex<BTreeMap<u64, Arc<OpenConnection>>>,
    opened: AtomicU64,
    began: Instant,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct OpenConnection {
    pub(super) peer: SocketAddr,
    /// The whole requests whose responses are not over.
    under_way: AtomicUsize,
    /// There was a whole request.
    was_asked: AtomicBool,
    /// Milliseconds from the begin of the listener.
    idle_since_ms: AtomicU64,
    gives_way: Notify,
    began: Instant,
}

/// A connection in the list of the open ones. Dropped, it leaves the list.
#[derive(Debug)]
pub(super) struct Registered {
    connections: Arc<OpenConnections>,
    number: u64,
    pub(super) connection: Arc<OpenConnection>,
}

/// A whole request under way. Dropped, its response is over.
#[derive(Debug)]
pub(super) struct WholeRequest(Arc<OpenConnection>);

impl OpenConnections {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            opened: AtomicU64::default(),
            began: Instant::now(),
        })
    }

    pub(super) fn enter(self: &Arc<Self>, peer: SocketAddr) -> Registered {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(OpenConnection {
            peer,
            under_way: AtomicUsize::default(),
            was_asked: AtomicBool::default(),
            idle_since_ms: AtomicU64::new(millis_since(self.began)),
            gives_way: Notify::new(),
            began: self.began,
        });
        let mut open = self.open.lock();
        open.insert(number, Arc::clone(&connection));
        CONNECTIONS.reached(open.len());
        drop(open);
        Registered {
            connections: Arc::clone(self),
            number,
            connection,
        }
    }

    /// Has some connections give way that have no whole request.
    pub(super) fn make_room(&self) {
        let now_ms = millis_since(self.began);
        let open = self.open.lock();
        let idle = open.iter().filter_map(|(number, connection)| {
            let is_idle = connection.under_way.load(Ordering::Relaxed) == 0;
            let since_ms = connection.idle_since_ms.load(Ordering::Relaxed);
            let is_idle = is_idle && now_ms >= since_ms.saturating_add(UNDISTURBED_MS);
            is_idle.then(|| (*number, block(connection.peer.ip()), since_ms))
        });
        for number in which(idle, open.len().div_ceil(PART)) {
            if let Some(connection) = open.get(&number) {
                // `notify_one` keeps a permit, so a connection that is just being polled does not miss it.
                connection.gives_way.notify_one();
            }
        }
    }
}

impl OpenConnection {
    /// A request of this connection has come whole.
    pub(super) fn is_asked(self: &Arc<Self>) -> WholeRequest {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.was_asked.store(true, Ordering::Relaxed);
        WholeRequest(Arc::clone(self))
    }

    /// Resolves when the connection must end at once. Before that, `stop` ends it in good order if it ever had a request.
    pub(super) async fn gives_way(&self, stop: CancellationToken) {
        loop {
            self.gives_way.notified().await;
            let is_idle = || self.under_way.load(Ordering::Relaxed) == 0;
            // The permit may be older than a request that has come whole since.
            if !is_idle() {
                continue;
            }
            if self.was_asked.load(Ordering::Relaxed) {
                // The end of its last response may still be on its way to the socket.
                stop.cancel();
                sleep(LAST_BYTES).await;
                if !is_idle() {
                    // Its last request came in that moment. The connection ends with the response.
                    return pending().await;
                }
            }
            return;
        }
    }
}

impl Drop for WholeRequest {
    fn drop(&mut self) {
        let now_ms = millis_since(self.0.began);
        // The time comes first: with the count first, a look between the two would take the connection for long idle.
        self.0.idle_since_ms.store(now_ms, Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.number);
    }
}

fn millis_since(began: Instant) -> u64 {
    let passed = Instant::now().saturating_duration_since(began);
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the address that stands for one peer: an address, or the 64 bits of IPv6 that one customer has.
fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The connections that give way, at most `count` of those that are idle: each time the one that is idle longest, of the peer that
/// then has the most.
fn which(idle: impl Iterator<Item = (u64, IpAddr, u64)>, count: usize) -> Vec<u64> {
    let mut of_peers = HashMap::<IpAddr, BinaryHeap<Reverse<(u64, u64)>>>::new();
    for (number, peer, since_ms) in idle {
        let of_peer = of_peers.entry(peer).or_default();
        of_peer.push(Reverse((since_ms, number)));
    }
    let mut peers: BinaryHeap<_> = of_peers
        .iter()
        .map(|(peer, idle)| (idle.len(), *peer))
        .collect();
    let mut which = Vec::new();
    while which.len() < count
        && let Some((has, peer)) = peers.pop()
    {
        let oldest = of_peers.get_mut(&peer).and_then(BinaryHeap::pop);
        which.extend(oldest.map(|Reverse((_, number))| number));
        if has > 1 {
            peers.push((has - 1, peer));
        }
    }
    which
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        block(text.parse().unwrap())
    }

    #[test]
    fn the_peer_with_the_most_gives_way_and_its_oldest_first() {
        let (greedy, other) = (peer("192.0.2.1"), peer("192.0.2.2"));
        let idle = [
            (0, other, 1),
            (1, greedy, 5),
            (2, greedy, 4),
            (3, other, 2),
            (4, greedy, 6),
            (5, greedy, 7),
        ];
        let which = |count| which(idle.into_iter(), count);
        assert_eq!(which(1), [2]);
        assert_eq!(which(2), [2, 1]);
        let mut all = which(9);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_peer_is_an_address_or_a_network_of_ipv6() {
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_whole_request_stays() {
        let all = OpenConnections::new();
        let (asked, silent) = (all.enter(PEER), all.enter(PEER));
        let request = asked.connection.is_asked();
        let stop = CancellationToken::new();
        let ends = |it: &Registered| {
            let (connection, stop) = (Arc::clone(&it.connection), stop.clone());
            async move {
                let ending = connection.gives_way(stop);
                tokio::time::timeout(LAST_BYTES * 2, ending).await.is_ok()
            }
        };
        all.make_room();
        assert!(!ends(&silent).await, "it has just begun");
        all.make_room();
        assert!(ends(&silent).await);
        assert!(!ends(&asked).await && !stop.is_cancelled());
        drop((silent, request));
        sleep(Duration::from_millis(UNDISTURBED_MS)).await;
        all.make_room();
        assert!(ends(&asked).await && stop.is_cancelled());
        drop(asked);
        assert!(all.open.lock().is_empty());
    }

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
}
