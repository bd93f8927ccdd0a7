//! Clients that listen: some that never read what they are told, and very many that are told nothing.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use super::grown;
use crate::book::Book;
use crate::client::{Client, Stream};
use crate::memory;
use crate::rig::solo::Solo;
use crate::upstream::{Flavour, Upstream};
use crate::{Asked, Report};

/// Who listens and does not read.
const DEAF: u32 = 300;

/// What the deaf are told of: so many tasks, each with a result of this size.
const TASKS: u32 = 20;
const RESULT_BYTES: usize = 256 << 10;

/// The most memory that a listener who is told nothing may cost.
const EACH_MAX: u64 = 20 << 10;

const CONFIG: &str = "[upstream]\nera = \"modern\"\n[tasks]\nmode = \"always\"\npoll_interval = \"100ms\"\n\
     max_duration = \"1h\"\n";

pub(super) async fn deaf(report: &mut Report) {
    let book = Book::default();
    let upstream = Upstream::start(Flavour::Modern, book).await;
    let mut solo = Solo::start(CONFIG, Some(&upstream.url())).await;
    let pid = solo.replica.pid().expect("a replica that runs");
    memory::forget_peak(pid);
    let before = memory::resident(pid);
    let client = &solo.client;
    let mut tasks = Vec::new();
    for n in 0..TASKS {
        // The result says the token, so that this is how large it is.
        let token = format!("{n:04}{}", "x".repeat(RESULT_BYTES));
        let heard = client
            .call("work", json!({"token": token, "ms": 6_000}))
            .await;
        tasks.extend(heard.task());
    }
    report.count("deaf_tasks", tasks.len());
    let (listeners, refused) = listen(client, DEAF, &tasks).await;
    report.zero("not_listened", refused);
    for id in &tasks {
        let deadline = std::time::Instant::now() + Duration::from_mins(2);
        let seen = crate::rig::follow::follow(std::slice::from_ref(client), id, deadline).await;
        if seen.status() != "completed" {
            report.breaks(format!("a task that the deaf listen to: {}", seen.status()));
        }
    }
    // As long as it takes to try, and to give a deaf listener up.
    tokio::time::sleep(Duration::from_secs(5)).await;
    report.count("deaf_listeners", listeners.len());
    grown(pid, before, "deaf_listeners", report);
    drop(listeners);
    solo.inspect(report);
}

pub(super) async fn idle(asked: Asked, report: &mut Report) {
    // Every stream is a descriptor on either side.
    let open = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: open.maximum,
        ..open
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    let upstream = Upstream::start(Flavour::Modern, Book::default()).await;
    let mut solo = Solo::start(CONFIG, Some(&upstream.url())).await;
    let pid = solo.replica.pid().expect("a replica that runs");
    let call = json!({"token": "idle", "ms": 3_600_000});
    let tasks: Vec<String> = solo
        .client
        .call("work", call)
        .await
        .task()
        .into_iter()
        .collect();
    // What the first ones cost is no part of what each costs.
    let (_warm, refused) = listen(&solo.client, 200, &tasks).await;
    report.zero("not_listened", refused);
    let before = memory::resident(pid);
    let (listeners, refused) = listen(&solo.client, asked.of(10_000, 1_000), &tasks).await;
    report.zero("not_listened", refused);
    let held = memory::resident(pid).saturating_sub(before);
    let each = held / u64::try_from(listeners.len().max(1)).unwrap_or(1);
    report.count("idle_listeners", listeners.len());
    report.at_most("bytes_each_idle_listener", each, EACH_MAX);
    drop(listeners);
    solo.inspect(report);
}

/// So many streams that watch these tasks.
async fn listen(client: &Client, count: u32, ids: &[String]) -> (Vec<Stream>, Vec<String>) {
    let opened = stream::iter(0..count).map(|_| begun(client, ids));
    let opened: Vec<_> = opened.buffer_unordered(32).collect().await;
    let (mut streams, mut refused) = (Vec::new(), Vec::new());
    for one in opened {
        match one {
            Ok(stream) => streams.push(stream),
            Err(why) => refused.push(why),
        }
    }
    (streams, refused)
}

/// A stream whose first event was read.
async fn begun(client: &Client, ids: &[String]) -> Result<Stream, String> {
    let params = json!({"notifications": {"taskIds": ids}});
    let mut stream = client.stream("subscriptions/listen", params).await?;
    let first = tokio::time::timeout(Duration::from_secs(30), stream.next()).await;
    let first = first.ok().flatten().unwrap_or_default();
    let watched = first["params"]["notifications"]["taskIds"].as_array();
    if watched.map(Vec::len) == Some(ids.len()) {
        Ok(stream)
    } else {
        Err(format!("a subscription began with {first}"))
    }
}
