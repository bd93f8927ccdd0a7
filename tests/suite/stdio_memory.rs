//! What a thousand concurrent calls to one process of the server leave behind: nothing.

use std::cell::Cell;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::time::Instant;

use crate::memory;
use crate::support::client::Client;
use crate::support::{Config, Era, PATIENCE, Proxy, eventually, in_both_eras, within};

in_both_eras!(a_thousand_calls_leave_nothing_behind);

const CALLS: usize = 1000;

const RUNS: usize = 3;

async fn a_thousand_calls_leave_nothing_behind(era: Era) {
    // Each call has a connection of its own.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let mode = match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    };
    let proxy = Config::never().run(mode).await;
    let client = Client::of(proxy.address());
    client.call("holding", json!({})).await.into_text();
    let open = open_files(&proxy);
    run(&client, 1).await;
    until_closed(&client, &proxy, open).await;
    let first = at_rest(proxy.pid()).await;
    for number in 2..=RUNS {
        run(&client, number).await;
    }
    until_closed(&client, &proxy, open).await;
    let last = at_rest(proxy.pid()).await;
    assert!(last * 10 <= first * 11, "from {first} to {last} bytes");
}

/// How long the resident memory must not fall until it is at rest: longer than the allocator keeps what was freed.
const REST: Duration = Duration::from_millis(1500);

/// The resident memory once the allocator has given back what was freed, in bytes.
pub(crate) async fn at_rest(pid: u32) -> u64 {
    let least = Cell::new((u64::MAX, Instant::now()));
    eventually(PATIENCE, "memory is given back", || async {
        let (now, (so_far, since)) = (memory::resident(pid), least.get());
        if now < so_far {
            least.set((now, Instant::now()));
        } else if Instant::now().saturating_duration_since(since) >= REST {
            return Ok(so_far);
        }
        Err(format!("{now} bytes"))
    })
    .await
}

/// The connections of a run are gone, and all that belongs to them.
async fn until_closed(client: &Client, proxy: &Proxy, open: usize) {
    eventually(PATIENCE, "every connection is closed", async || {
        let left = open_files(proxy);
        if left > open {
            client.call("holding", json!({})).await.into_text();
            return Err(format!("{left} open files, {open} before"));
        }
        Ok(())
    })
    .await;
}

fn open_files(proxy: &Proxy) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", proxy.pid())).unwrap();
    open.count()
}

/// All are under way before the first is answered, and each is answered with its own.
async fn run(client: &Client, number: usize) {
    let nonce = |n: usize| format!("{number}-{n}");
    let calling = (0..CALLS).map(|n| {
        let (client, arguments) = (client.clone(), json!({"nonce": nonce(n)}));
        tokio::spawn(async move { client.call("hold", arguments).await.into_text() })
    });
    let calls: Vec<_> = calling.collect();
    let all = CALLS.to_string();
    eventually(PATIENCE * 2, "all are under way", async || {
        let holding = client.call("holding", json!({})).await.into_text();
        if holding == all { Ok(()) } else { Err(holding) }
    })
    .await;
    let nonces: Vec<String> = (0..CALLS).rev().map(nonce).collect();
    client.call("release", json!({"nonces": nonces})).await;
    for (n, call) in calls.into_iter().enumerate() {
        let text = within(PATIENCE, "it is answered", call).await.unwrap();
        assert_eq!(text, nonce(n));
    }
}
