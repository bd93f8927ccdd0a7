//! A thousand clients that hang up around the grace window and around the create.
//!
//! What holds afterwards: every task whose id came over the wire can be found, and every call that
//! no such id stands for has come to an end at the server. A client "hears" an id when the bytes
//! reach its socket, so both transports are read to the last byte that the proxy sent: HTTP/1.1 by
//! closing one's own half first, HTTP/2 on a connection that outlives its streams.

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
const WINDOW: Duration = Duration::from_millis(60);
/// A machine that has much else to do answers nobody within such a window: it gets longer ones.
const WINDOW_MAX: Duration = Duration::from_secs(1);
const ROUNDS: usize = 3;

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
    patience: Duration,
}

/// What the client of one race heard.
#[derive(Debug)]
struct Heard {
    race: Race,
    /// A plain result came.
    plain: bool,
    tasks: Vec<String>,
}

/// What a round came to.
#[derive(Debug)]
struct Outcomes {
    plain: usize,
    tasks: usize,
    nothing: usize,
    /// How long a create took.
    create: Duration,
}

/// Until the races were races: each outcome came about.
async fn race(era: Era, transport: Transport) {
    let mut window = WINDOW;
    for _ in 0..ROUNDS {
        let outcomes = round(era, transport, window).await;
        println!("{outcomes:?}");
        if outcomes.plain > 0 && outcomes.tasks > 0 && outcomes.nothing > 0 {
            return;
        }
        window = (window * 4).max(outcomes.create * 2).min(WINDOW_MAX);
    }
    panic!("these were no races");
}

async fn round(era: Era, transport: Transport, window: Duration) -> Outcomes {
    let seed = u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap());
    println!("seed {seed}");
    let mut random = Random(seed);
    let config = Config::auto(&format!("{}ms", window.as_millis()))
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
    let create = time_of_a_create(&client).await;
    let races: Vec<Race> = (0..RACES)
        .map(|number| Race::random(number, (window, create), &mut random))
        .collect();
    let heard: Vec<Heard> = stream::iter(races.into_iter().zip(racing.iter().cycle()))
        .map(|(race, client)| run(client, transport, race))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;

    for client in &racing {
        // Answered behind everything that was sent on this connection, and after every reset.
        client
            .asking("tasks/get", &Task::by_id("nothing"))
            .send()
            .await;
    }
    let told = everything_told(&heard, &arrived);
    verify(&rig, &client, &heard, &told).await;
    let plain = heard.iter().filter(|one| one.plain).count();
    let tasks = heard.iter().filter(|one| !one.tasks.is_empty()).count();
    Outcomes {
        plain,
        tasks,
        nothing: heard.len() - plain - tasks,
        create,
    }
}

/// How long a create takes here and now, with as many at once as there are going to be: what is
/// around it depends on the machine.
async fn time_of_a_create(client: &Client) -> Duration {
    // The server is known, and its tools.
    client.call("echo", json!({"text": ""})).await.into_result();
    let began = Instant::now();
    let creates = (0..AT_ONCE).map(|_| client.call("slow", json!({"nonce": "warm", "ms": 0})));
    futures_util::future::join_all(creates).await;
    Instant::now().saturating_duration_since(began)
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
    // Every announced task can be found; whoever knows its id can end it.
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
}

impl Race {
    fn random(number: usize, (window, create): (Duration, Duration), random: &mut Random) -> Self {
        let tool = ["work", "slow", "held", "never"][number % 4];
        let created_first = matches!(tool, "slow" | "never");
        // From before the request was read to well after the answer could have been.
        let around_create = create.mul_f64(random.share() * 1.5);
        let around_window = window.mul_f64(0.5 + random.share());
        Self {
            nonce: format!("race-{number}"),
            tool,
            work_ms: random.below(2 * u64::try_from(window.as_millis()).unwrap()),
            patience: if created_first {
                around_create
            } else {
                around_window + around_create
            },
        }
    }

    /// The work ends by itself.
    fn ends(&self) -> bool {
        matches!(self.tool, "work" | "slow")
    }
}

async fn run(client: &Client, transport: Transport, race: Race) -> Heard {
    let call = client.calling(race.tool, json!({"nonce": race.nonce, "ms": race.work_ms}));
    let body = match transport {
        Transport::Http1 => half_closed(call.bytes(), client, race.patience).await,
        Transport::Http2 => {
            let answer = call.or_hang_up_after(race.patience).await;
            answer
                .map(|answer| answer.body.into_bytes())
                .unwrap_or_default()
        }
    };
    let text = String::from_utf8_lossy(&body);
    let plain = text.contains(r#""content":"#);
    Heard {
        plain,
        tasks: task_ids(&body),
        race,
    }
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
