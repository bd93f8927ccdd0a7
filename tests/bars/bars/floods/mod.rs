//! Floods in the memory of a small container: raincheck lives, and the calls of others are answered soon.
//!
//! Where the machine allows it, the replica runs in a memory cgroup of 512 MiB, where the kernel kills what takes more.
//! Elsewhere nothing limits it, and only its peak is measured. The floods are the same at any size; the size says how
//! often they come.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;

use self::neighbour::Neighbour;
use self::senders::Outcome;
use self::server::Server;
use crate::client::{Client, Stream};
use crate::memory;
use crate::rig::memory_limit::{self, MemoryLimit};
use crate::rig::solo::Solo;
use crate::{Asked, Report};

mod apart;
mod neighbour;
mod senders;
mod server;

const MEBIBYTE: u64 = 1 << 20;

/// The memory of a container, as deploy/ has it.
const LIMIT: u64 = 512 * MEBIBYTE;

/// The results that are not read.
const RESULT_BYTES: usize = 3 << 20;

/// Listeners to tasks that do not exist, and how many each names.
const LISTENERS: usize = 1_000;
const UNKNOWN_IDS: usize = 10;

/// How much longer the slowest call of another client may take than the slowest at a replica that nobody floods. Both
/// replicas and the flooding clients share the same cores, perhaps with other programs, so that only the difference says
/// what a flood costs.
const SOON: Duration = Duration::from_millis(100);

/// The same in a development build, which takes about forty times as long to read 4 MiB of JSON. It says only that no call
/// is forgotten.
const SOON_IN_DEVELOPMENT: Duration = Duration::from_secs(10);

/// All defaults but for h2c.
const CONFIG: &str = "[listen]\nh2c = true\n[upstream]\nera = \"modern\"\n\
     [[tools]]\nname = \"plain\"\nmode = \"never\"\n";

type Flood = fn(std::net::SocketAddr) -> BoxFuture<'static, Outcome>;

const FLOODS: [(&str, Flood); 5] = [
    ("whole_bodies", |address| {
        Box::pin(senders::whole_bodies(address))
    }),
    ("slow_bodies", |address| {
        Box::pin(senders::slow_bodies(address))
    }),
    ("http2_whole", |address| {
        Box::pin(senders::one_http2_connection(address, true))
    }),
    ("http2_slow", |address| {
        Box::pin(senders::one_http2_connection(address, false))
    }),
    ("deaf_clients", |address| {
        Box::pin(senders::deaf_clients(address))
    }),
];

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let limit = MemoryLimit::try_new(LIMIT);
    report.count("limited", u64::from(limit.is_some()));
    let server = Server::start(RESULT_BYTES).await;
    let mut solo = Solo::start_within(CONFIG, Some(server.url()), limit.as_ref()).await;
    let elsewhere = Solo::start(CONFIG, Some(server.url())).await;
    let neighbour = Neighbour::start(solo.replica.address(), elsewhere.replica.address());
    // The first calls of all wait until it is known what the server is.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(neighbour.take());
    let listening = listen(&solo.client, report).await;
    answered("listeners", &neighbour, report);
    for _ in 0..asked.of(5, 1) {
        for (name, flood) in FLOODS {
            flooded(&mut solo, name, flood, &neighbour, report).await;
        }
    }
    drop((neighbour, listening));
    if let Some(pid) = solo.replica.pid().filter(|_| !solo.replica.died()) {
        let peak = memory_limit::peak(pid, limit.as_ref()) / MEBIBYTE;
        report.at_most("mib_at_most", peak, LIMIT / MEBIBYTE - 1);
    }
    solo.inspect(report);
}

async fn flooded(
    solo: &mut Solo,
    name: &str,
    flood: Flood,
    neighbour: &Neighbour,
    report: &mut Report,
) {
    let Some(pid) = solo.replica.pid().filter(|_| !solo.replica.died()) else {
        return report.breaks(format!("{name}: raincheck is dead"));
    };
    memory::forget_peak(pid);
    let address = solo.replica.address();
    let outcome = apart::flood(move || flood(address)).await;
    report.count(&format!("{name}_taken"), outcome.taken);
    report.count(&format!("{name}_refused"), outcome.refused);
    report.zero(&format!("{name}_otherwise"), outcome.otherwise);
    answered(name, neighbour, report);
    if !solo.replica.died() {
        let resident = memory::peak(pid) / MEBIBYTE;
        report.at_most(&format!("mib_resident_{name}"), resident, LIMIT / MEBIBYTE);
    }
}

/// Every call of the neighbour had its result, and soon.
fn answered(name: &str, neighbour: &Neighbour, report: &mut Report) {
    let calls = neighbour.take();
    if calls.answered == 0 {
        report.breaks(format!("{name}: no call beside it"));
    }
    report.count("calls_beside", calls.answered);
    report.zero("calls_beside_failed", calls.failed);
    let milliseconds = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let (slowest, elsewhere) = (calls.slowest, calls.slowest_elsewhere);
    let soon = if is_release() {
        SOON
    } else {
        SOON_IN_DEVELOPMENT
    };
    let no_more = milliseconds(soon + elsewhere);
    report.at_most(&format!("ms_beside_{name}"), milliseconds(slowest), no_more);
    let elsewhere = milliseconds(elsewhere);
    report.at_most(&format!("ms_elsewhere_{name}"), elsewhere, u64::MAX);
}

/// A program that was named is one that is fit for use.
fn is_release() -> bool {
    std::env::var_os("RAINCHECK_BIN").is_some() || !cfg!(debug_assertions)
}

/// Listeners that are told nothing, ever.
async fn listen(client: &Client, report: &mut Report) -> Vec<Stream> {
    let mut listening = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..LISTENERS {
        let unknown: Vec<String> = (0..UNKNOWN_IDS)
            .map(|_| uuid::Uuid::new_v4().to_string())
            .collect();
        let params = json!({"notifications": {"taskIds": unknown}});
        match client.stream("subscriptions/listen", params).await {
            Ok(mut stream) => {
                if stream.next().await.is_none() {
                    refused.push("a stream without a first event".to_owned());
                }
                listening.push(stream);
            }
            Err(why) => refused.push(why),
        }
    }
    report.count("listeners", listening.len());
    report.zero("not_listened", refused);
    listening
}
