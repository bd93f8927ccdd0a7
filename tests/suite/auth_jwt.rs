//! Signed tokens of an issuer: whose they are, when they count, and what their end ends.

use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, Task};
use crate::support::issuer::{Issuer, now_s};
use crate::support::{
    Config, Era, PATIENCE, Proxy, Rig, Upstream, eventually, in_both_eras, within,
};

in_both_eras!(
    a_renewed_token_keeps_its_task,
    nobody_else_gets_at_the_task,
    a_forged_token_gets_nowhere,
    a_stream_ends_with_its_token_and_the_task_does_not,
    a_call_that_waits_ends_with_its_token,
);

/// An issuer, and a proxy that wants its tokens and has its keys.
struct Scene {
    issuer: Issuer,
    rig: Rig,
}

impl Scene {
    async fn start(era: Era, config: Config, lines: &str) -> Self {
        let issuer = Issuer::start().await;
        let rig = Rig::start(era, issuer.wanted_by(config, lines)).await;
        rig.proxy
            .until_said("the keys of an issuer were fetched", 1)
            .await;
        Self { issuer, rig }
    }

    fn client(&self, subject: &str) -> Client {
        self.rig.client().named(self.issuer.token(subject))
    }

    /// The same with other claims.
    fn client_with(&self, subject: &str, claims: Value) -> Client {
        let token = self.issuer.token_with(subject, claims, json!({}));
        self.rig.client().named(token)
    }
}

fn challenge(answer: &Answer) -> &str {
    let header = answer.headers.get("www-authenticate");
    header.map_or("", |header| header.to_str().unwrap())
}

async fn a_renewed_token_keeps_its_task(era: Era) {
    let scene = Scene::start(era, Config::always(), "caller_claims = \"tenant\"").await;
    let in_tenant = |tenant: u32| scene.client_with("alice", json!({"tenant": tenant}));
    let before = in_tenant(1);
    let task = before.call("ask", json!({})).await.into_task();
    let asked = before.until(&task, "input_required").await;

    scene.issuer.rotate("second");
    let after = in_tenant(1);
    let seen = after.until(&task, "input_required").await;
    assert_eq!(seen["inputRequests"], asked["inputRequests"]);
    let elsewhere = in_tenant(2).asking("tasks/get", &task).send().await;
    assert_eq!(elsewhere.refusal(), (400, -32602));
    let nowhere = scene
        .client("alice")
        .asking("tasks/get", &task)
        .send()
        .await;
    assert_eq!(nowhere.status, 401, "its tenant is not said");
    after.cancel(&task).await.assert_acknowledged();
    after.until(&task, "cancelled").await;
    // What was signed by a key that is gone does not count, however often it did.
    let refused = before.asking("tasks/get", &task).send().await;
    assert_eq!(refused.status, 401);
    assert!(
        challenge(&refused).contains("unknown key"),
        "{}",
        challenge(&refused)
    );
}

async fn nobody_else_gets_at_the_task(era: Era) {
    let scene = Scene::start(era, Config::always().terms("attach = true"), "").await;
    let (alice, bob) = (scene.client("alice"), scene.client("bob"));
    let held = json!({"nonce": "hers"});
    let task = alice.call("held", held.clone()).await.into_task();
    scene.rig.upstream.until_started("hers").await;
    let unknown = Task::by_id(uuid::Uuid::new_v4().to_string());
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let ask = async |task: &Task| {
            let request = bob.asking(method, task).edit(|message| {
                message["id"] = json!(1);
                message["params"]["inputResponses"] = json!({});
            });
            let answer = request.send().await;
            (answer.status, answer.body)
        };
        assert_eq!(ask(&task).await, ask(&unknown).await, "{method}");
    }
    let mut stream = bob.listen(&[&task]).await;
    let acknowledged = stream.next().await;
    assert_eq!(
        acknowledged["params"]["notifications"]["taskIds"],
        json!([])
    );
    // The same call of another caller is another one.
    let his = bob.call("held", held.clone()).await.into_task();
    assert_ne!(his.id, task.id);
    let joined = scene.client("alice").call("held", held).await.into_task();
    assert_eq!(joined.id, task.id, "a new token of hers joins");
    scene.rig.upstream.release("hers");
    alice.until(&task, "completed").await;
}

/// The whole table is beside the code: these are the ones whose way in would be another part's mistake.
async fn a_forged_token_gets_nowhere(era: Era) {
    let scene = Scene::start(era, Config::always(), "").await;
    let stranger = Issuer::start().await;
    let other = |claims: Value, head: Value| scene.issuer.token_with("alice", claims, head);
    let good = scene.issuer.token("alice");
    let long = json!({"more": "a".repeat(8 * 1024)});
    for (token, says) in [
        (
            other(json!({"aud": "https://other.example"}), json!({})),
            "another audience",
        ),
        (other(json!({"exp": now_s() - 31}), json!({})), "expired"),
        (other(json!({"exp": null}), json!({})), "no end"),
        (
            other(json!({"nbf": now_s() + 60}), json!({})),
            "not count yet",
        ),
        (
            other(json!({"iss": "https://other.example"}), json!({})),
            "issuer",
        ),
        (
            other(json!({}), json!({"alg": "none"})),
            "way that does not count",
        ),
        (
            other(json!({}), json!({"alg": "HS256"})),
            "way that does not count",
        ),
        (other(json!({}), json!({"crit": ["exp"]})), "critical"),
        (other(long, json!({})), "too long"),
        (stranger.token("alice"), "issuer"),
        (
            stranger.token_with("alice", json!({"iss": scene.issuer.name()}), json!({})),
            "signature",
        ),
        (format!("{good}A"), "signature"),
        (good.replace("Bearer ", "Bearer e30."), "cannot be read"),
    ] {
        let client = scene.rig.client().named(token);
        let refused = client.call("echo", json!({"text": "x"})).await;
        assert_eq!(refused.status, 401, "{says}: {}", refused.body);
        let challenge = challenge(&refused);
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert!(challenge.contains(says), "{says}: {challenge}");
    }
    assert!(scene.rig.upstream.received_of_clients().is_empty());
    let alice = scene.rig.client().named(good);
    alice.call("echo", json!({"text": "x"})).await.into_task();
}

/// Of a token that ends now, the leeway of 30 seconds almost gone.
fn ending(scene: &Scene, seconds: u64) -> Client {
    scene.client_with("alice", json!({"exp": now_s() + seconds - 30}))
}

async fn a_stream_ends_with_its_token_and_the_task_does_not(era: Era) {
    let scene = Scene::start(era, Config::always(), "").await;
    let lasting = scene.client("alice");
    let task = lasting
        .call("held", json!({"nonce": "n"}))
        .await
        .into_task();
    let ends = now_s() + 3;
    let mut stream = ending(&scene, 3).listen(&[&task]).await;
    stream.next_of("notifications/tasks").await;
    let ended = async { while stream.next_or_end().await.is_some() {} };
    within(PATIENCE, "the stream ends", ended).await;
    let now = now_s();
    assert!(
        (ends - 1..=ends + 2).contains(&now),
        "ended {now}, its token {ends}"
    );
    scene.rig.upstream.until_started("n").await;
    scene.rig.upstream.release("n");
    lasting.until(&task, "completed").await;
}

/// A client without tasks waits on its connection, also when nothing came yet.
async fn a_call_that_waits_ends_with_its_token(era: Era) {
    let scene = Scene::start(era, Config::never(), "").await;
    let client = ending(&scene, 3).without_tasks();
    let calling = client.calling("held", json!({"nonce": "n"})).send();
    let answer = within(PATIENCE, "the call ends", calling).await;
    let has_result = answer.body.contains("\"result\"");
    assert!(!has_result, "{}: {}", answer.status, answer.body);
    let late = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(late.status, 401);
    assert!(challenge(&late).contains("expired"));
}

/// Strangers can make up key ids; the issuer must not hear of it.
#[tokio::test]
async fn a_thousand_unknown_keys_cause_two_fetches() {
    let scene = Scene::start(Era::Modern, Config::always(), "").await;
    assert_eq!(scene.issuer.fetches(), 1);
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..1_000 {
        let head = json!({"kid": format!("made-up-{number}")});
        let token = scene.issuer.token_with("alice", json!({}), head);
        let client = scene.rig.client().named(token);
        asking.spawn(async move { client.request("tools/list", json!({})).send().await.status });
        if asking.len() >= 32 {
            assert_eq!(asking.join_next().await.unwrap().unwrap(), 401);
        }
    }
    while let Some(status) = asking.join_next().await {
        assert_eq!(status.unwrap(), 401);
    }
    let caused = scene.issuer.fetches() - 1;
    assert!((1..=2).contains(&caused), "{caused}");
    let alice = scene.client("alice");
    alice.call("echo", json!({"text": "x"})).await.into_task();
}

/// A key that is new is found by its first token, once for all who come with it.
#[tokio::test]
async fn new_keys_are_found_while_it_runs() {
    let scene = Scene::start(Era::Modern, Config::always(), "").await;
    scene.issuer.rotate("second");
    let clients: Vec<Client> = (0..20).map(|_| scene.client("alice")).collect();
    let calls = clients
        .iter()
        .map(|client| client.call("echo", json!({"text": "x"})));
    for answer in futures_util::future::join_all(calls).await {
        answer.into_task();
    }
    assert!(scene.issuer.fetches() <= 3, "{}", scene.issuer.fetches());
}

async fn proxy_of(issuer: &Issuer, upstream: &Upstream) -> Proxy {
    let config = issuer.wanted_by(Config::always().probed(""), "");
    config.start(&upstream.url()).await
}

#[tokio::test]
async fn it_is_ready_when_the_keys_are_there() {
    let issuer = Issuer::start().await;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nlocation: {}/jwks\r\ncontent-length: 0\r\n\r\n",
        issuer.name()
    );
    issuer.answer_instead(redirect);
    let upstream = Upstream::start(Era::Modern).await;
    let proxy = proxy_of(&issuer, &upstream).await;
    let probes = Client::of(proxy.probes().await);
    eventually(PATIENCE, "only the keys are missing", async || {
        let missing = probes.page("/readyz").await.json()["missing"].take();
        (missing == json!(["issuer_keys"]))
            .then_some(())
            .ok_or(missing)
    })
    .await;
    let client = Client::of(proxy.address()).named(issuer.token("alice"));
    let unjudged = client.request("tools/list", json!({})).send().await;
    assert_eq!(unjudged.status, 503, "{}", unjudged.body);
    assert_eq!(challenge(&unjudged), "");
    proxy.until_said("HTTP 302", 1).await;
    let long = format!("{{\"keys\":\"{}\"}}", "a".repeat(256 * 1024));
    for (useless, why) in [("{}", "no set of keys"), (&long, "length limit exceeded")] {
        let length = useless.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        issuer.answer_instead(head + useless);
        proxy.until_said(why, 1).await;
        assert_eq!(probes.page("/readyz").await.status, 503);
    }
    issuer.answer_keys();
    probes.until_page("/readyz", 200).await;
    client.call("echo", json!({"text": "x"})).await.into_task();
    // The keys that were fetched once count on.
    issuer.answer_instead("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n");
    let unknown = issuer.token_with("alice", json!({}), json!({"kid": "x"}));
    let refused = Client::of(proxy.address()).named(unknown);
    assert_eq!(refused.http(Method::GET, "/mcp").send().await.status, 401);
    let again = Client::of(proxy.address()).named(issuer.token("alice"));
    again.call("echo", json!({"text": "x"})).await.into_task();
}

/// Either kind of token counts where both are wanted.
#[tokio::test]
async fn tokens_of_a_file_and_of_an_issuer_stand_together() {
    let directory = crate::support::TempDir::new();
    // Of "alice".
    let hash = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    let file = directory.file("tokens", &format!("alice: {hash}"));
    let config = Config::always().section("auth", &format!("tokens_file = \"{}\"", file.display()));
    let scene = Scene::start(Era::Modern, config, "").await;
    let by_file = scene.rig.client().named("Bearer alice");
    let by_issuer = scene.client("alice");
    let task = by_file.call("echo", json!({"text": "x"})).await.into_task();
    by_issuer
        .call("echo", json!({"text": "x"}))
        .await
        .into_task();
    let foreign = by_issuer.asking("tasks/get", &task).send().await;
    assert_eq!(foreign.refusal(), (400, -32602), "one name, two clients");
}
