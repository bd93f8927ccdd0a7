//! The store is away when a client gives up, or between its tries: a call that is cancelled or lost runs anew, and no client
//! waits for ever.

use std::time::Duration;

use serde_json::json;

use crate::counted::{until_at, value};
use crate::given_up::{GAVE_UP, TIMED_OUT, assert_runs, cancel, text};
use crate::held::{Session, primed};
use crate::redis_server::RedisServer;
use crate::support::client::{Client, Request};
use crate::support::operator::with_operators;
use crate::support::stream::Stream;
use crate::support::upstream::Tally;
use crate::support::{Config, Era, Rig, in_both_eras, try_eventually};

in_both_eras!(
    a_call_is_collected_after_an_outage,
    a_try_that_waits_through_an_outage_gets_the_result,
    a_connection_that_closes_while_the_store_is_away_cancels,
    a_try_of_a_modern_client_during_an_outage_is_a_call_of_its_own,
);

/// The clock of the modern clients. It ends a little early, because on a busy machine the end is noticed late.
const CLOCK: Duration = Duration::from_millis(980);

/// A longer clock, which ends after it was noticed that the store is away.
const LONGER: Duration = Duration::from_millis(5_980);

/// What the log says when the store is back.
const BACK: &str = "the store answers again";

/// A store that keeps on disk what it was told.
fn lasting() -> RedisServer {
    RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"])
}

struct Scene {
    rig: Rig,
    redis: RedisServer,
    session: Session,
}

impl Scene {
    async fn start(era: Era, redis: RedisServer, window: &str) -> Self {
        let terms = format!("give_up_window = {window:?}");
        let config = with_operators(Config::auto("2s")).terms(&terms);
        let rig = Rig::start(era, config.redis(&redis.url())).await;
        let session = Session::open(rig.client()).await;
        Self {
            rig,
            redis,
            session,
        }
    }

    /// The first try, which its client gives up. The call is kept.
    async fn kept(era: Era, redis: RedisServer, window: &str) -> Self {
        let scene = Self::start(era, redis, window).await;
        let mut first = scene.call(10).stream().await;
        primed(&mut first).await;
        scene.cancels(10).await;
        until_at(&scene.rig.proxy, GAVE_UP, 1.0).await;
        scene
    }

    /// The call, whose result says which of the server's calls it was.
    fn call(&self, id: u64) -> Request {
        let arguments = json!({"nonce": "a", "says": "number"});
        let call = self.session.calling("held", arguments);
        call.edit(|message| message["id"] = json!(id))
    }

    async fn cancels(&self, id: u64) {
        let cancelled = self.session.post(&cancel(id, TIMED_OUT)).send().await;
        assert_eq!(cancelled.status, 202);
    }

    /// A try that waits, and its client.
    async fn tries(&self, id: u64) -> Stream {
        let mut stream = self.call(id).stream().await;
        primed(&mut stream).await;
        stream
    }

    async fn until(&self, what: &str, wanted: impl Fn(Tally) -> bool) {
        self.rig.upstream.until("a", what, wanted).await;
    }

    /// The store comes back, and raincheck has noticed.
    async fn comes_back(&mut self, times: usize) {
        self.redis.restart();
        self.rig.proxy.until_said(BACK, times).await;
    }

    /// The store goes away, and raincheck has noticed.
    async fn goes_away(&mut self) {
        self.redis.kill();
        let said = "the store does not answer";
        self.rig.proxy.until_said(said, 1).await;
    }

    /// A try that is a call of its own. The server's other calls of this name end with it.
    async fn runs_anew(&self, id: u64, number: u32) {
        let call = tokio::spawn(self.call(id).send());
        let started = |tally: Tally| tally.started == number;
        self.until("started again", started).await;
        self.rig.upstream.release("a");
        let answer = call.await.unwrap().json();
        let text = &answer["result"]["content"][0]["text"];
        assert_eq!(*text, format!("call {number}"), "{answer}");
        assert_eq!(answer["id"], id);
    }
}

#[tokio::test]
async fn a_clock_that_ends_while_the_store_is_away_cancels() {
    let mut scene = Scene::start(Era::Legacy, RedisServer::start(), "2m").await;
    let _first = scene.tries(10).await;
    scene.goes_away().await;
    scene.cancels(10).await;
    scene.until("cancelled", |tally| tally.cancelled == 1).await;
    scene.runs_anew(11, 2).await;
}

/// The store does not answer, and nobody has noticed so far.
#[tokio::test]
async fn a_clock_that_ends_while_the_store_hangs_cancels() {
    let scene = Scene::start(Era::Legacy, RedisServer::start(), "2m").await;
    let _first = scene.tries(10).await;
    scene.redis.freeze();
    scene.cancels(10).await;
    scene.until("cancelled", |tally| tally.cancelled == 1).await;
    scene.runs_anew(11, 2).await;
    scene.redis.thaw();
}

async fn a_call_is_collected_after_an_outage(era: Era) {
    let mut scene = Scene::kept(era, lasting(), "2m").await;
    scene.goes_away().await;
    scene.comes_back(1).await;
    let mut second = scene.tries(11).await;
    scene.rig.upstream.release("a");
    assert_eq!(text(&mut second).await, (json!(11), "call 1".into()));
    assert_runs(&scene.rig.upstream, "a", 1);
}

/// It does not wait for the store. What was kept is collected later.
#[tokio::test]
async fn a_try_during_an_outage_is_a_call_of_its_own() {
    let mut scene = Scene::kept(Era::Legacy, lasting(), "2m").await;
    scene.goes_away().await;
    scene.runs_anew(11, 2).await;
    scene.comes_back(1).await;
    let third = scene.call(12).send().await.json();
    let text = &third["result"]["content"][0]["text"];
    assert_eq!(text, "call 1", "{third}");
    assert_runs(&scene.rig.upstream, "a", 2);
}

async fn a_try_that_waits_through_an_outage_gets_the_result(era: Era) {
    let mut scene = Scene::kept(era, lasting(), "2m").await;
    let mut second = scene.tries(11).await;
    scene.goes_away().await;
    scene.rig.upstream.release("a");
    scene.until("finished", |tally| tally.finished == 1).await;
    scene.comes_back(1).await;
    assert_eq!(text(&mut second).await, (json!(11), "call 1".into()));
    assert_runs(&scene.rig.upstream, "a", 1);
}

/// Nobody can collect the call any more, so it ends.
#[tokio::test]
async fn a_store_that_forgot_the_call_costs_a_run() {
    let mut scene = Scene::kept(Era::Legacy, RedisServer::start(), "1s").await;
    scene.goes_away().await;
    scene.comes_back(1).await;
    scene.runs_anew(11, 2).await;
    let over = |tally: Tally| tally.finished + tally.cancelled == 2;
    scene.until("over", over).await;
}

/// The store takes no claim, so that nobody can collect the call: it ends with its window, as one that nobody collected.
#[tokio::test]
async fn a_call_that_is_given_up_again_during_an_outage_is_cancelled_later() {
    let scene = Scene::kept(Era::Legacy, RedisServer::start(), "1s").await;
    let _second = scene.tries(11).await;
    scene.redis.freeze();
    scene.cancels(11).await;
    let said = "a call that its client gave up again cannot be collected";
    scene.rig.proxy.until_said(said, 1).await;
    scene.redis.thaw();
    scene.until("cancelled", |tally| tally.cancelled == 1).await;
}

/// The call of a modern client.
fn ann(client: &Client, nonce: &str) -> Request {
    let ann = client.clone().without_tasks().named("Bearer ann");
    ann.calling("held", json!({"nonce": nonce, "says": "number"}))
}

/// The same call, which the server runs as its second of this nonce.
async fn runs_anew(rig: &Rig, nonce: &str) {
    let again = tokio::spawn(ann(&rig.client(), nonce).send());
    let started = |tally: Tally| tally.started == 2;
    rig.upstream.until(nonce, "started again", started).await;
    rig.upstream.release(nonce);
    assert_eq!(again.await.unwrap().into_text(), "call 2");
}

async fn a_connection_that_closes_while_the_store_is_away_cancels(era: Era) {
    let mut redis = RedisServer::start();
    let rig = Rig::start(era, Config::auto("2s").redis(&redis.url())).await;
    rig.client().call("slow", json!({})).await.into_text();
    let call = ann(&rig.client(), "a");
    let first = tokio::spawn(call.or_hang_up_after(LONGER));
    rig.upstream.until_started("a").await;
    redis.kill();
    rig.proxy.until_said("the store does not answer", 1).await;
    assert!(first.await.unwrap().is_none());
    let cancelled = |tally: Tally| tally.cancelled == 1;
    rig.upstream.until("a", "cancelled", cancelled).await;
    runs_anew(&rig, "a").await;
}

async fn a_try_of_a_modern_client_during_an_outage_is_a_call_of_its_own(era: Era) {
    let mut redis = lasting();
    let config = with_operators(Config::auto("20s")).redis(&redis.url());
    let rig = Rig::start(era, config).await;
    rig.client().call("slow", json!({})).await.into_text();
    let nonce = kept(&rig).await;
    redis.kill();
    rig.proxy.until_said("the store does not answer", 1).await;
    runs_anew(&rig, &nonce).await;
    redis.restart();
    rig.proxy.until_said(BACK, 1).await;
    let third = ann(&rig.client(), &nonce).send().await;
    assert_eq!(third.into_text(), "call 1");
    assert_runs(&rig.upstream, &nonce, 2);
}

/// A call that its client gave up. Returns its nonce. On a busy machine the client may be late.
async fn kept(rig: &Rig) -> String {
    for number in 0..5 {
        let nonce = format!("{number}");
        let call = ann(&rig.client(), &nonce);
        assert!(call.or_hang_up_after(CLOCK).await.is_none());
        let is_kept = async || value(&rig.proxy, GAVE_UP).await == Some(1.0);
        if try_eventually(CLOCK, is_kept).await.is_ok() {
            return nonce;
        }
    }
    panic!("no call was kept");
}
