//! Calls at a server that wants its client's credentials. None is stored: after the end of its owner such a call waits for the next
//! request of its client, and goes on with the credentials of that request.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::answer::Task;
use crate::support::issuer::Issuer;
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Upstream, eventually};

/// How the server lets another process carry a call on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It keeps the events of its streams.
    Stream,
    /// It makes a task of its own (2025-11-25).
    Task,
    /// It starts a job, and has tools that report on it.
    Job(Era),
}

const KINDS: [Kind; 4] = [
    Kind::Stream,
    Kind::Task,
    Kind::Job(Era::Legacy),
    Kind::Job(Era::Modern),
];

const WAITS: &str = "a call waits for the next request of its client";
const CARRIED_ON: &str = "a call is carried on for its lost owner";

/// Two replicas in front of a server that gets the token of each client.
struct Scene {
    kind: Kind,
    issuer: Issuer,
    pair: Pair,
}

impl Scene {
    async fn start(kind: Kind) -> Self {
        let upstream = match kind {
            Kind::Stream | Kind::Task => Upstream::start(Era::Legacy).await,
            Kind::Job(era) => Upstream::with_jobs(era).await,
        };
        if kind == Kind::Stream {
            upstream.keep_events();
        }
        let issuer = Issuer::start().await;
        let config = Config::always()
            .section("upstream", "shared = true\ncredentials = \"forward\"")
            .section("drain", "grace = \"2s\"")
            .section("[jobs]", RULE)
            .store(&format!("seal_key = {SEAL_KEY:?}"));
        let pair = Pair::of(upstream, issuer.wanted_by(config, "")).await;
        for proxy in [&pair.a, &pair.b] {
            until_ready(proxy).await;
        }
        Self { kind, issuer, pair }
    }

    /// Alice, with a token that she has not shown before.
    fn alice(&self) -> String {
        self.issuer.token("alice")
    }

    /// After the death of the replica that carried a call of Alice's, with that call's task and the token that it came with.
    async fn orphaned(kind: Kind) -> (Self, Task, String) {
        let mut scene = Self::start(kind).await;
        let token = scene.alice();
        let task = scene.call(&scene.pair.at_a().named(&*token), "a").await;
        scene.pair.until_resumable(&task).await;
        scene.pair.a.kill();
        scene.pair.b.until_said(WAITS, 1).await;
        (scene, task, token)
    }

    async fn call(&self, client: &Client, name: &str) -> Task {
        let (tool, arguments) = match self.kind {
            Kind::Stream => ("held", json!({"nonce": name})),
            Kind::Task => ("only", json!({"nonce": name})),
            Kind::Job(_) => ("job_start", json!({"name": name})),
        };
        client.call(tool, arguments).await.into_task()
    }

    fn finish(&self, name: &str) {
        match self.kind {
            Kind::Stream | Kind::Task => self.pair.upstream.release(name),
            Kind::Job(_) => self.pair.upstream.job_is(name, json!({"status": "done"})),
        }
    }

    /// How often the tool ran.
    fn runs(&self) -> usize {
        self.pair.upstream.calls_of(match self.kind {
            Kind::Stream => "held",
            Kind::Task => "only",
            Kind::Job(_) => "job_start",
        })
    }

    fn cancels(&self) -> usize {
        let upstream = &self.pair.upstream;
        match self.kind {
            Kind::Stream => upstream.requests("notifications/cancelled").len(),
            Kind::Task => upstream.requests("tasks/cancel").len(),
            Kind::Job(_) => upstream.calls_of("job_cancel"),
        }
    }

    /// The `Authorization` of the last request at the server.
    fn last_shown(&self) -> String {
        let last = self.pair.upstream.received().pop().unwrap();
        last.header("authorization").unwrap_or_default().to_owned()
    }
}

const RULE: &str = r#"
start = "job_start"
status = "job_status"
cancel = "job_cancel"
poll = { first = "500ms", max = "500ms" }
"#;

async fn until_ready(proxy: &Proxy) {
    proxy
        .until_said("the keys of an issuer were fetched", 1)
        .await;
}

#[tokio::test]
async fn after_the_death_of_its_owner_a_call_waits_for_its_client() {
    for kind in KINDS {
        let (scene, task, token) = Scene::orphaned(kind).await;
        let before = scene.pair.upstream.received().len();

        // Another caller brings no credentials for it.
        let bob = scene.pair.at_b().named(scene.issuer.token("bob"));
        let refused = bob.asking("tasks/get", &task).send().await;
        assert_eq!(refused.refusal(), (400, -32602), "{kind:?}");
        assert_eq!(scene.pair.upstream.received().len(), before, "{kind:?}");

        let renewed = scene.alice();
        let alice = scene.pair.at_b().named(&*renewed);
        assert_eq!(alice.get(&task).await["status"], "working", "{kind:?}");
        scene.pair.b.until_said(CARRIED_ON, 1).await;
        scene.finish("a");
        alice.until(&task, "completed").await;
        assert_eq!((scene.runs(), scene.cancels()), (1, 0), "{kind:?}");
        assert_eq!(scene.last_shown(), renewed, "{kind:?}");
        let stored = scene.pair.record(&task).await;
        for token in [&token, &renewed] {
            let secret = token.rsplit('.').next().unwrap();
            assert!(!stored.contains(secret) && !scene.pair.b.log().contains(secret));
        }
    }
}

#[tokio::test]
async fn a_drain_leaves_a_call_to_its_client() {
    for kind in KINDS {
        let mut scene = Scene::start(kind).await;
        let task = scene
            .call(&scene.pair.at_a().named(scene.alice()), "a")
            .await;
        scene.pair.until_resumable(&task).await;
        assert!(scene.pair.a.stop().await.success());
        assert!(scene.pair.a.log().contains(WAITS), "{kind:?}");
        // The call ends at the server before any replica follows it again.
        scene.finish("a");
        let alice = scene.pair.at_b().named(scene.alice());
        alice.until(&task, "completed").await;
        assert_eq!((scene.runs(), scene.cancels()), (1, 0), "{kind:?}");
    }
}

#[tokio::test]
async fn a_token_that_ends_ends_no_call() {
    for kind in KINDS {
        let scene = Scene::start(kind).await;
        let token = scene.alice();
        let task = scene.call(&scene.pair.at_a().named(&*token), "a").await;
        scene.pair.until_resumable(&task).await;
        scene.pair.upstream.refuse(&token);
        // The server looks at the token of each request: the request for the result of its task goes on.
        scene.pair.upstream.cut();
        if kind != Kind::Task {
            scene.pair.a.until_said(WAITS, 1).await;
        }
        let alice = scene.pair.at_b().named(scene.alice());
        assert_eq!(alice.get(&task).await["status"], "working", "{kind:?}");
        scene.finish("a");
        alice.until(&task, "completed").await;
        assert_eq!((scene.runs(), scene.cancels()), (1, 0), "{kind:?}");
    }
}

#[tokio::test]
async fn a_call_that_waits_is_cancelled_at_the_server() {
    for kind in KINDS {
        let (scene, task, _) = Scene::orphaned(kind).await;
        let alice = scene.pair.at_b().named(scene.alice());
        alice.cancel(&task).await.assert_acknowledged();
        alice.until(&task, "cancelled").await;
        eventually(PATIENCE, "the server is told", async || {
            let cancels = scene.cancels();
            (cancels > 0).then_some(()).ok_or(cancels)
        })
        .await;
        assert_eq!(scene.runs(), 1, "{kind:?}");
    }
}

/// The same call again, by its key, is a request of the client as well: after the end of the owner, or while it still runs.
#[tokio::test]
async fn the_same_call_again_carries_the_call_on() {
    for is_joined_before in [false, true] {
        let mut scene = Scene::start(Kind::Stream).await;
        let calling = |client: Client| {
            let call = client
                .without_tasks()
                .calling("held", json!({"nonce": "a"}));
            call.header("idempotency-key", "k")
        };
        let at_b = || calling(scene.pair.at_b().named(scene.alice()));
        let first = tokio::spawn(calling(scene.pair.at_a().named(scene.alice())).send());
        eventually(PATIENCE, "where to resume is written down", async || {
            let records = records(&scene.pair).await.concat();
            let is_so = records.contains(r#""resume":"#);
            is_so.then_some(()).ok_or(records)
        })
        .await;
        let joined = is_joined_before.then(|| tokio::spawn(at_b().send()));
        let again = at_b();
        scene.pair.a.kill();
        first.abort();
        scene.pair.b.until_said(WAITS, 1).await;
        let again = joined.unwrap_or_else(|| tokio::spawn(again.send()));
        scene.pair.b.until_said(CARRIED_ON, 1).await;
        scene.finish("a");
        assert_eq!(again.await.unwrap().into_text(), "released");
        assert_eq!(scene.runs(), 1);
    }
}

/// Clients that wait over a stream ask no more: the stream is their request.
#[tokio::test]
async fn an_open_stream_carries_the_call_on() {
    for kind in KINDS {
        let mut scene = Scene::start(kind).await;
        let task = scene
            .call(&scene.pair.at_a().named(scene.alice()), "a")
            .await;
        scene.pair.until_resumable(&task).await;
        let mut stream = scene
            .pair
            .at_b()
            .named(scene.alice())
            .listen(&[&task])
            .await;
        scene.pair.a.kill();
        scene.pair.b.until_said(CARRIED_ON, 1).await;
        scene.finish("a");
        let mut sent = 0;
        loop {
            let event = stream.next().await;
            sent += 1;
            if event["params"]["status"] == "completed" {
                break;
            }
        }
        assert!(sent < 12, "{kind:?}: {sent} events");
        assert_eq!((scene.runs(), scene.cancels()), (1, 0), "{kind:?}");
    }
}

/// A stream that stays open has only the token that it was opened with. The call does not wait for that.
#[tokio::test]
async fn a_renewed_token_counts_beside_a_stream_with_one_that_ended() {
    let (scene, task, _) = Scene::orphaned(Kind::Job(Era::Legacy)).await;
    let ended = scene.alice();
    scene.pair.upstream.refuse(&ended);
    let _stream = scene.pair.at_b().named(&*ended).listen(&[&task]).await;
    scene.pair.b.until_said(WAITS, 2).await;
    let alice = scene.pair.at_b().named(scene.alice());
    assert_eq!(alice.get(&task).await["status"], "working");
    scene.pair.b.until_said(CARRIED_ON, 2).await;
    scene.finish("a");
    alice.until(&task, "completed").await;
    assert_eq!((scene.runs(), scene.cancels()), (1, 0));
}

/// A header by which the server may know its client is stored nowhere, and no other request need have it.
#[tokio::test]
async fn a_call_with_more_than_credentials_fails_with_its_owner() {
    let mut scene = Scene::start(Kind::Stream).await;
    let client = scene.pair.at_a().named(scene.alice());
    let call = client.calling("held", json!({"nonce": "a"}));
    let task = call.header("x-tenant", "7").send().await.into_task();
    scene.pair.upstream.until_started("a").await;
    let plain = scene.call(&client, "b").await;
    scene.pair.until_resumable(&plain).await;
    scene.pair.a.kill();
    let state = scene
        .pair
        .at_b()
        .named(scene.alice())
        .until(&task, "failed")
        .await;
    let data = &state["error"]["data"];
    assert_eq!(data["io.raincheck/reason"], "owner_lost", "{state}");
}

async fn records(pair: &Pair) -> Vec<String> {
    let mut connection = pair.connect().await;
    let mut find = redis::cmd("KEYS");
    find.arg("{suite:00}:t:*");
    let keys: Vec<String> = find.query_async(&mut connection).await.unwrap();
    let mut found = Vec::new();
    for key in keys {
        let mut read = redis::cmd("HGET");
        read.arg(key).arg("d");
        found.extend(
            read.query_async::<Option<String>>(&mut connection)
                .await
                .unwrap(),
        );
    }
    found
}

/// The tasks of a rolling restart.
const TASKS: usize = 100;

#[tokio::test]
async fn a_rolling_restart_fails_no_task_whose_client_still_asks() {
    for kind in KINDS {
        let mut scene = Scene::start(kind).await;
        let both = [scene.pair.at_a(), scene.pair.at_b()];
        let begun = (0..TASKS).map(|number| {
            let client = both[number % 2].clone().named(scene.alice());
            let scene = &scene;
            async move { scene.call(&client, &format!("n{number}")).await }
        });
        let tasks: Vec<Task> = join_all(begun).await;
        for task in &tasks {
            scene.pair.until_resumable(task).await;
        }
        assert!(scene.pair.a.stop().await.success());
        let next = scene.pair.another("c").await;
        until_ready(&next).await;
        asked(&scene, &next, &tasks).await;
        assert!(scene.pair.b.stop().await.success());
        let last = scene.pair.another("d").await;
        until_ready(&last).await;
        asked(&scene, &last, &tasks).await;
        for number in 0..TASKS {
            scene.finish(&format!("n{number}"));
        }
        let ended = tasks.iter().enumerate().map(|(number, task)| {
            let proxy = if number % 2 == 0 { &next } else { &last };
            let alice = Client::of(proxy.address()).named(scene.alice());
            async move { alice.until(task, "completed").await }
        });
        join_all(ended).await;
        assert_eq!((scene.runs(), scene.cancels()), (TASKS, 0), "{kind:?}");
    }
}

/// Each client asks once for its task.
async fn asked(scene: &Scene, at: &Proxy, tasks: &[Task]) {
    let asking = tasks.iter().map(|task| {
        let alice = Client::of(at.address()).named(scene.alice());
        async move { assert_eq!(alice.get(task).await["status"], "working") }
    });
    join_all(asking).await;
}
