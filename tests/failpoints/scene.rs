//! One crash, and what comes after it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use raincheck::base::failpoint::Point;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::left;
use super::plan::{End, Plan, Way, passed_before};
use super::redis_server::RedisServer;
use super::support::client::{Client, Request, Task};
use super::support::shape::assert_state;
use super::support::{Config, Era, PATIENCE, Proxy, Upstream, within};

const SEAL_KEY: &str = "1f2e3d4c5b6a79880f1e2d3c4b5a69781f2e3d4c5b6a79880f1e2d3c4b5a6978";
const JOBS: &str = r#"
start = "job_start"
status = "job_status"
result = "job_result"
poll = { first = "500ms", max = "500ms" }
"#;
const SIGABRT: i32 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Redb,
    Redis,
}

/// A process that crashes, in front of a server, and on Redis a second one beside it.
pub(crate) struct Scene {
    point: Point,
    plan: Plan,
    victim: Proxy,
    other: Option<Proxy>,
    redis: Option<RedisServer>,
    upstream: Upstream,
    /// A modern call that waits for its client while all this happens.
    parked: Option<Task>,
    /// The task, if the client was told of it.
    task: Option<Task>,
}

impl Scene {
    pub(crate) async fn play(point: Point, store: Store, era: Era) {
        let mut scene = Self::open(point, store, era).await;
        scene.come_to_the_point().await;
        scene.check(store).await;
    }

    async fn open(point: Point, store: Store, era: Era) -> Self {
        let plan = Plan::of(point, era);
        let upstream = Upstream::with_jobs(era).await;
        upstream.job_is("a", json!({"status": "done"}));
        if plan.resumable {
            upstream.keep_events();
        }
        let redis = (store == Store::Redis).then(RedisServer::start);
        let config = Config::always()
            .terms(plan.rule(era))
            .section("[jobs]", JOBS)
            .section("drain", "grace = \"2s\"");
        let config = match &redis {
            None => config.embedded(),
            Some(redis) => config
                .redis(&redis.url())
                .section("upstream", "shared = true")
                .section("replica", "lease = \"3s\"")
                .store(&format!("seal_key = {SEAL_KEY:?}")),
        };
        let is_first = plan.way != Way::Recovery;
        let nth = 1 + passed_before(point, era);
        let crashing = config.clone().crashing(point.name(), nth);
        let (victim, other) = match (is_first, &redis) {
            (true, None) => (crashing, None),
            (true, Some(_)) => (crashing, Some(config)),
            // The one that recovers crashes in its turn, and a third makes good.
            (false, None) => (config, None),
            (false, Some(_)) => (config, Some(crashing)),
        };
        let victim = victim.start(&upstream.url()).await;
        let other = match other {
            Some(other) => Some(other.start(&upstream.url()).await),
            None => None,
        };
        let mut scene = Self {
            point,
            plan,
            victim,
            other,
            redis,
            upstream,
            parked: None,
            task: None,
        };
        if era == Era::Modern {
            scene.park().await;
        }
        scene
    }

    async fn park(&mut self) {
        let client = Client::of(self.victim.address());
        let call = client.call("ask", json!({"nonce": "parked"})).await;
        let task = call.into_task();
        client.until(&task, "input_required").await;
        self.parked = Some(task);
    }

    async fn come_to_the_point(&mut self) {
        let client = Client::of(self.victim.address());
        let call = client
            .calling(
                Plan::tool(self.point),
                json!({"n": 1, "then": self.plan.then}),
            )
            .edit(|message| {
                message["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!("error");
            });
        self.task = ask(&client, call).await.and_then(task_of);
        if self.plan.way == Way::Call {
            return self.crashed().await;
        }
        let task = self.task.clone().expect("the client was told");
        client
            .until_it(&task, "at step 1", |state| {
                state["statusMessage"] == "step 1"
            })
            .await;
        match self.plan.way {
            Way::Call => {}
            Way::LetGoOn => self.upstream.release("steps"),
            Way::Answer => {
                self.upstream.release("steps");
                let state = client.until(&task, "input_required").await;
                ask(&client, client.updating(&task, answers(&state))).await;
            }
            Way::Stop => self.victim.terminate(),
            Way::Recovery => {
                self.victim.kill();
                return self.crashed_in_recovery().await;
            }
        }
        self.crashed().await;
    }

    async fn crashed(&mut self) {
        let status = self.victim.ended().await;
        self.assert_crashed(status, &self.victim.log());
        if self.other.is_none() {
            self.victim.restart().await;
        }
    }

    async fn crashed_in_recovery(&mut self) {
        let (status, log) = match &mut self.other {
            None => {
                let status = self.victim.crash_again(self.point.name()).await;
                (status, self.victim.log())
            }
            Some(other) => (other.ended().await, other.log()),
        };
        self.assert_crashed(status, &log);
        self.other = None;
        self.victim.restart().await;
    }

    #[track_caller]
    fn assert_crashed(&self, status: ExitStatus, log: &str) {
        let point = self.point.name();
        assert_eq!(status.signal(), Some(SIGABRT), "{point}: {status}\n{log}");
        let said = format!("crashing as told point=\"{point}\"");
        assert!(log.contains(&said), "{point} was not come to\n{log}");
    }

    /// Whoever is left makes good.
    async fn check(mut self, store: Store) {
        self.upstream.release("steps");
        let survivor = self.other.as_ref().unwrap_or(&self.victim);
        let client = Client::of(survivor.address());
        let end = match &self.task {
            Some(task) => Some(ended(&client, task).await),
            None => None,
        };
        if let Some(parked) = &self.parked {
            let state = client.get(parked).await;
            assert_state(&state, "input_required");
            let state = ended(&client, parked).await;
            assert_text(&state, "Ada");
            assert_eq!(self.upstream.tally("parked").started, 2, "two legs");
        }
        if let Some(redis) = &self.redis {
            left::nothing_in_redis(redis).await;
        } else {
            self.victim.kill();
            left::nothing_in_file(&self.victim.store_file()).await;
        }
        if let Some(end) = end {
            self.assert_end(&end);
        }
        let (least, most) = self.plan.runs;
        let runs = self.upstream.tally(Plan::tool(self.point)).started;
        assert!(
            (least..=most).contains(&runs),
            "{:?} on {store:?}: the call ran {runs} times",
            self.point
        );
    }

    #[track_caller]
    fn assert_end(&self, state: &Value) {
        match self.plan.end {
            End::Unknown => panic!("nobody could know of it: {state}"),
            End::Completed(text) => assert_text(state, text),
            End::CompletedBig => assert_text(state, &"x".repeat(64 << 10)),
            End::Error => {
                assert_state(state, "failed");
                assert_eq!(state["error"]["code"], -32050, "{state}");
            }
            End::CompletedOrLost if state["status"] == "completed" => assert_text(state, "stepped"),
            End::Lost | End::CompletedOrLost => {
                assert_state(state, "failed");
                let data = &state["error"]["data"];
                assert_eq!(data["io.raincheck/reason"], "owner_lost", "{state}");
                assert_eq!(data["io.raincheck/effect"], "unknown", "{state}");
            }
        }
    }
}

#[track_caller]
fn assert_text(state: &Value, text: &str) {
    assert_state(state, "completed");
    assert_eq!(state["result"]["content"][0]["text"], text, "{state}");
}

/// Answers what the task asks until it has ended.
async fn ended(client: &Client, task: &Task) -> Value {
    let end = async {
        loop {
            let state = client.until_it(task, "asking or ended", |state| {
                state["status"] != "working"
            });
            let state = state.await;
            if state["status"] != "input_required" {
                return state;
            }
            let answer = client.update(task, answers(&state)).await;
            answer.assert_acknowledged();
        }
    };
    within(PATIENCE * 2, "the task ends", end).await
}

/// Ada, to everything that is asked.
fn answers(state: &Value) -> Value {
    let asked = state["inputRequests"].as_object().unwrap();
    let accept = json!({"action": "accept", "content": {"name": "Ada"}});
    asked
        .keys()
        .map(|key| (key.clone(), accept.clone()))
        .collect()
}

/// The answer, unless the process was gone before it was written.
async fn ask(client: &Client, request: Request) -> Option<Value> {
    let asked = async {
        let mut stream = TcpStream::connect(client.address()).await.ok()?;
        stream.write_all(&request.bytes()).await.ok()?;
        let mut answer = Vec::new();
        // What came before a reset counts.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let mut messages = answer
            .lines()
            .map(|line| line.strip_prefix("data: ").unwrap_or(line))
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        messages.rfind(Value::is_object)
    };
    within(PATIENCE, "an answer, or the process is gone", asked).await
}

fn task_of(answer: Value) -> Option<Task> {
    let id = answer["result"]["taskId"].as_str()?;
    Some(Task::by_id(id))
}
