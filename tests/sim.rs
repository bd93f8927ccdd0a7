//! A simulation of two replicas: a store that delays, loses and is cut off, a scripted server, processes that
//! are killed, under paused time. A seed decides what happens.
//!
//! What must hold, whatever happens: a call has its effect at most once, unless it is safe to repeat; a client
//! that hears of no effect hears the truth; a task that a client heard of ends; of two owners at most one
//! commits; an end that was committed stays; a key runs once, however many clients come with it; only the owner
//! of a call writes into its log; an event of a call is the same on every replica, stays as it is in the log, and
//! comes in its order.
//!
//! `SEEDS=1000 cargo test --test sim` for the long run, `SEED=17` for one history. The ids of tasks and the
//! pauses between heartbeats are drawn elsewhere: a history is nearly the same each time, not exactly.
#![expect(clippy::disallowed_methods, reason = "tests own their environment")]
#![expect(clippy::print_stdout, reason = "how far a run went")]

#[path = "sim/abandoned.rs"]
mod abandoned;
#[path = "sim/away.rs"]
mod away;
#[path = "sim/conflicting.rs"]
mod conflicting;
#[path = "sim/dice.rs"]
mod dice;
#[path = "sim/doubted.rs"]
mod doubted;
#[path = "sim/forger.rs"]
mod forger;
#[path = "sim/joined.rs"]
mod joined;
#[path = "sim/link.rs"]
mod link;
#[path = "sim/logged.rs"]
mod logged;
#[path = "sim/replica.rs"]
mod replica;
#[path = "sim/server.rs"]
mod server;
#[path = "sim/store.rs"]
mod store;
#[path = "sim/world.rs"]
mod world;

use std::ops::Range;

use raincheck::store::sealed::Clear;
use store::Planted;
use world::Tally;

/// Runs the future under paused time: time goes on when nothing else is left to do.
fn under_paused_time<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(what)
}

fn run(seed: u64, planted: Option<Planted>) -> Tally {
    under_paused_time(world::history(seed, planted, None))
}

fn run_forged(seed: u64, clear: Clear) -> Tally {
    under_paused_time(world::history(seed, None, Some(clear)))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> Range<u64> {
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(50),
    }
}

/// Runs a history for each seed. Fails if a promise was broken in one of them.
fn all_hold(run: impl Fn(u64) -> Tally) -> Tally {
    let seeds = seeds();
    let (mut wrong, mut all) = (Vec::new(), Tally::default());
    for seed in seeds.clone() {
        let found = run(seed);
        all.add(&found);
        if !found.wrongs.is_empty() {
            println!("seed {seed}: {:?}", found.wrongs);
            wrong.push(seed);
        }
    }
    println!("{seeds:?}: {all:?}");
    assert!(wrong.is_empty(), "of {seeds:?} these went wrong: {wrong:?}");
    all
}

#[test]
fn every_promise_holds_through_every_storm() {
    let all = all_hold(|seed| run(seed, None));
    let seeds = seeds();
    if seeds.end - seeds.start >= 50 {
        let happened = [
            all.plain,
            all.completed,
            all.failed,
            all.cancelled,
            all.carried_on,
            all.repeated,
            all.questions,
            all.unsent,
            all.joined,
            all.drained,
            all.logged.answered,
            all.logged.lost,
            all.logged.taken_over,
        ];
        assert!(happened.iter().all(|count| *count > 0), "{all:?}");
    }
}

fn is_found(planted: Planted) {
    let found = (0..200).find_map(|seed| {
        let wrongs = run(seed, Some(planted)).wrongs;
        wrongs.into_iter().next().map(|first| (seed, first))
    });
    println!("{planted:?}: {found:?}");
    assert!(found.is_some(), "{planted:?} was not found");
}

#[test]
fn a_store_where_the_last_write_wins_is_found() {
    is_found(Planted::LastWriteWins);
}

#[test]
fn a_store_that_leaves_the_fence_is_found() {
    is_found(Planted::SameFence);
}

#[test]
fn a_store_that_gives_a_name_twice_is_found() {
    is_found(Planted::ClaimsTwice);
}

#[test]
fn a_store_that_forgets_is_found() {
    is_found(Planted::Forgets);
}

/// Whoever can write to a sealed store brings about no call and no result.
#[test]
fn no_forgery_is_run_or_read() {
    let all = all_hold(|seed| run_forged(seed, Clear::Refused));
    assert!(all.forged > 0, "{all:?}");
}

#[test]
fn a_replica_that_reads_forgeries_is_found() {
    let found = (0..200).find(|seed| !run_forged(*seed, Clear::Read).wrongs.is_empty());
    assert!(found.is_some());
}
