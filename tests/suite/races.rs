//! A thousand clients that hang up around the grace window and around the create.
//!
//! What holds afterwards: every task whose id came over the wire can be found, and every call that
//! no such id stands for has come to an end at the server. A client "hears" an id when the bytes
//! reach its socket, so both transports are read to the last byte that the proxy sent: HTTP/1.1 by
//! closing one's own half first, HTTP/2 on a connection that outlives its streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::client::{Client, Task};
use crate::support::tap::{Arrived, task_ids};
use crate::support::{Config, Era, PATIENCE, Rig, within};

const RACES: usize = 250;
const AT_ONCE: usize = 16;
/// A connection is closed for too many resets on it: no client hangs up that often.
const CONNECTIONS: usize = 25;
const WINDOW_MS: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http1_in_front_of_a_legacy_server() {
    race(Era::Legacy, Transport::Http1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http1_in_front_of_a_modern_server() {
    race(Era::Modern, Transport::Http1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_in_front_of_a_legacy_server() {
    race(Era::Legacy, Transport::Http2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_in_front_of_a_modern_server() {
    race(Era::Modern, Transport::Http2).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Http1,
    Http2,
}

/// One race: which call, how long it takes at the server, when the client hangs up.
#[derive(Debug, Clone)]
struct Race {
    nonce: String,
    /// `work` by the grace window, `slow` created first; `held` never ends by itself.
    tool: &'static str,
    work_ms: u64,
    /// Of the grace window, where it waits for that.
    window: Duration,
    /// Of the time that a create takes, on top of it.
    creates: f64,
}

/// How long a create takes here and now, found out by who hears of one and who does not: what is
/// around it depends on the machine, and on what else that does.
struct Pace(AtomicU64);

impl Pace {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Kept where as many hear something as not.
    fn heard(&self, something: bool) {
        let change = |micros: u64| {
            let step = micros / 16 + 1;
            Some(if something {
                micros - step.min(micros)
            } else {
                micros + step
            })
        };
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

/// What the client of one race heard.
#[derive(Debug)]
struct Heard {
    race: Race,
    /// A plain result came.
    plain: bool,
    tasks: Vec<String>,
}

async fn race(era: Era, transport: Transport) {
    let seed = u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap());
    println!("seed {seed}");
    let mut random = Random(seed);
    let config = Config::auto(&format!("{WINDOW_MS}ms"))
        .http2()
        .tool("slow", "mode = \"always\"")
        .tool("never", "mode = \"always\"");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let mut racing = vec![client.clone()];
    let mut arrived = Vec::new();
    if transport == Transport::Http2 {
        let connections = (0..CONNECTIONS).map(|_| client.clone().over_http2());
        (racing, arrived) = futures_util::future::join_all(connections)
            .await
            .into_iter()
            .unzip();
    }
    let pace = time_of_a_create(&client).await;
    let races: Vec<Race> = (0..RACES)
        .map(|number| Race::random(number, &mut random))
        .collect();
    let heard: Vec<Heard> = stream::iter(races.into_iter().zip(racing.iter().cycle()))
        .map(|(race, client)| run(client, transport, race, &pace))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;

    for client in &racing {
        until_seen(client).await;
    }
    let told = everything_told(&heard, &arrived);
    verify(&rig, &client, &heard, &told).await;
}

/// With as many at once as there are going to be.
async fn time_of_a_create(client: &Client) -> Pace {
    // The server is known, and its tools.
    client.call("echo", json!({"text": ""})).await.into_result();
    let began = Instant::now();
    let creates = (0..AT_ONCE).map(|_| client.call("slow", json!({"nonce": "warm", "ms": 0})));
    futures_util::future::join_all(creates).await;
    let took = Instant::now().saturating_duration_since(began);
    Pace(AtomicU64::new(took.as_micros().try_into().unwrap()))
}

/// All ids that came over the wire, also those that came when their stream was closed already.
fn everything_told(heard: &[Heard], arrived: &[Arrived]) -> Vec<Task> {
    let mut ids: Vec<String> = heard.iter().flat_map(|heard| heard.tasks.clone()).collect();
    ids.extend(arrived.iter().flat_map(Arrived::task_ids));
    ids.sort();
    ids.dedup();
    ids.into_iter().map(Task::by_id).collect()
}

async fn verify(rig: &Rig, client: &Client, heard: &[Heard], told: &[Task]) {
    // Every announced task can be found, and a client that knows its id can end it.
    for task in told {
        let state = client.get(task).await;
        assert!(state["status"].is_string(), "{state}");
    }
    // A task whose work ends by itself completes although its client left long ago.
    for one in heard.iter().filter(|one| one.race.ends()) {
        for id in &one.tasks {
            client.until(&Task::by_id(id), "completed").await;
        }
    }
    for task in told {
        client.cancel(task).await.assert_acknowledged();
    }
    if tokio::time::timeout(PATIENCE, rig.upstream.idle())
        .await
        .is_err()
    {
        let runs_on = |one: &&Heard| rig.upstream.tally(&one.race.nonce).running() > 0;
        let lost: Vec<&Heard> = heard.iter().filter(runs_on).collect();
        panic!(
            "{} calls run on that nobody can find: {lost:#?}",
            lost.len()
        );
    }
    for one in heard {
        let tally = rig.upstream.tally(&one.race.nonce);
        assert!(tally.started <= 1, "run once: {one:?} {tally:?}");
        assert!(
            !one.plain || tally.finished == 1,
            "a plain result is an end: {one:?} {tally:?}"
        );
        if !one.race.ends() {
            assert_eq!(tally.finished, 0, "{one:?} {tally:?}");
            assert_eq!(tally.cancelled, tally.started, "{one:?} {tally:?}");
        }
    }
    // The races were races: each outcome came about.
    let plain = heard.iter().filter(|one| one.plain).count();
    let tasks = heard.iter().filter(|one| !one.tasks.is_empty()).count();
    let nothing = heard.len() - plain - tasks;
    println!("{plain} plain, {tasks} tasks, {nothing} heard nothing");
    assert!(
        plain > 0 && tasks > 0 && nothing > 0,
        "{plain} {tasks} {nothing}"
    );
}

impl Race {
    fn random(number: usize, random: &mut Random) -> Self {
        let tool = ["work", "slow", "held", "never"][number % 4];
        let created_first = matches!(tool, "slow" | "never");
        let around_window = Duration::from_millis(WINDOW_MS).mul_f64(0.5 + random.share());
        Self {
            nonce: format!("race-{number}"),
            tool,
            work_ms: random.below(2 * WINDOW_MS),
            window: if created_first {
                Duration::ZERO
            } else {
                around_window
            },
            // From before the request was read to well after the answer could have been.
            creates: random.share() * 2.0,
        }
    }

    /// The work ends by itself.
    fn ends(&self) -> bool {
        matches!(self.tool, "work" | "slow")
    }
}

async fn run(client: &Client, transport: Transport, race: Race, pace: &Pace) -> Heard {
    let patience = race.window + pace.now().mul_f64(race.creates);
    let call = client.calling(race.tool, json!({"nonce": race.nonce, "ms": race.work_ms}));
    let body = match transport {
        Transport::Http1 => half_closed(call.bytes(), client, patience).await,
        Transport::Http2 => {
            let answer = call.or_hang_up_after(patience).await;
            if answer.is_none() {
                until_seen(client).await;
            }
            answer
                .map(|answer| answer.body.into_bytes())
                .unwrap_or_default()
        }
    };
    let text = String::from_utf8_lossy(&body);
    let plain = text.contains(r#""content":"#);
    let tasks = task_ids(&body);
    pace.heard(plain || !tasks.is_empty());
    Heard { race, plain, tasks }
}

/// Waits for an answer that comes behind everything that was sent on this connection, every reset
/// included. Clients that only hung up would be more than the proxy can serve: nobody would hear
/// anything.
async fn until_seen(client: &Client) {
    let nothing = Task::by_id("nothing");
    client.asking("tasks/get", &nothing).send().await;
}

/// Hangs up by closing one's own half, and reads what the proxy had sent until then.
async fn half_closed(request: Vec<u8>, client: &Client, patience: Duration) -> Vec<u8> {
    let mut stream = TcpStream::connect(client.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&request).await.unwrap();
    let mut body = Vec::new();
    let answered = tokio::time::timeout(patience, stream.read_to_end(&mut body)).await;
    if answered.is_err() {
        stream.shutdown().await.unwrap();
        // A reset ends it as well.
        let _ = within(
            PATIENCE,
            "the end of a connection",
            stream.read_to_end(&mut body),
        )
        .await;
    }
    body
}

/// `SplitMix64`: the same numbers for the same seed.
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.below(1 << 20)).unwrap()) / f64::from(1 << 20)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}
