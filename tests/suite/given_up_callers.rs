//! Two clients make the same call, and give it up in turn: each collects its own, and the tool runs once for each.

use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::auth_certificates::{Scene, issue_to};
use crate::auth_tokens::Tokens;
use crate::counted::{until_at, value};
use crate::given_up::{GAVE_UP, TIMED_OUT, assert_runs, cancel, text};
use crate::held::{Session, primed};
use crate::support::client::{Client, Request};
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::stream::{Stream, last_event};
use crate::support::upstream::Tally;
use crate::support::{Config, Era, PATIENCE, Proxy, Rig, Upstream, in_both_eras, try_eventually};
use crate::tls_client::{self, Identity};

in_both_eras!(
    two_sessions_that_give_up_in_turn_collect_each_its_own,
    two_sessions_of_one_caller_collect_each_its_own,
    many_calls_on_two_replicas_are_each_collected_by_their_own_session,
    two_bearers_collect_each_their_own,
    two_bearers_whom_the_operator_knows_collect_each_their_own,
    two_programs_of_this_machine_collect_each_their_own,
    another_tenant_behind_one_credential_does_not_collect_it,
);

/// The clock of the modern clients. It ends a little early, because on a busy machine the end is noticed late.
const CLOCK: Duration = Duration::from_millis(980);

/// The time in which a call is kept whose client has just given up.
const SOON: Duration = Duration::from_secs(2);

/// The call, whose result says which of the server's calls it was.
fn arguments(nonce: &str) -> Value {
    json!({"nonce": nonce, "says": "number"})
}

fn config() -> Config {
    with_operators(Config::auto("20s"))
}

/// The call of a session under this id, once its stream has begun.
async fn tries(session: &Session, id: u64) -> Stream {
    let call = session.calling("held", arguments("a"));
    let call = call.edit(|message| message["id"] = json!(id));
    let mut stream = call.stream().await;
    primed(&mut stream).await;
    stream
}

/// Each of the sessions gives the call up three times, not always in the same order, and waits in the end.
async fn give_up_in_turn(upstream: &Upstream, sessions: [&Session; 2]) {
    let mut streams = Vec::new();
    for (number, session) in (1..).zip(sessions) {
        streams.push(tries(session, 1).await);
        let started = |tally: Tally| tally.started == number;
        upstream.until("a", "started", started).await;
    }
    for (id, order) in [(1, [0, 1]), (2, [1, 0]), (3, [0, 1])] {
        for which in order {
            let told = sessions[which].post(&cancel(id, TIMED_OUT)).send().await;
            assert_eq!(told.status, 202);
        }
        for which in [order[1], order[0]] {
            streams[which] = tries(sessions[which], id + 1).await;
        }
    }
    upstream.release("a");
    for (number, stream) in (1..).zip(&mut streams) {
        let expected = (json!(4), format!("call {number}"));
        assert_eq!(text(stream).await, expected);
    }
    assert_runs(upstream, "a", 2);
}

async fn two_sessions_that_give_up_in_turn_collect_each_its_own(era: Era) {
    let rig = Rig::start(era, config()).await;
    let first = Session::open(rig.client()).await;
    let second = Session::open(rig.client()).await;
    give_up_in_turn(&rig.upstream, [&first, &second]).await;
}

/// Each may have a state of its own at the server.
async fn two_sessions_of_one_caller_collect_each_its_own(era: Era) {
    let rig = Rig::start(era, config()).await;
    let open = || Session::open(rig.client().named("Bearer ann"));
    let (first, second) = (open().await, open().await);
    give_up_in_turn(&rig.upstream, [&first, &second]).await;
}

/// All calls are given up at one replica, then at the other, and then collected at the first.
async fn many_calls_on_two_replicas_are_each_collected_by_their_own_session(era: Era) {
    let pair = &Pair::of(Upstream::start(era).await, config()).await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(Session::open(pair.at_a()).await);
    }
    let sessions = &sessions;
    let at_b: Vec<_> = sessions.iter().map(|it| it.over(pair.at_b())).collect();
    for (replica, sessions, id) in [(&pair.a, sessions, 0), (&pair.b, &at_b, MANY)] {
        let giving_up = (0..MANY).map(|number| async move {
            let mut stream = one_of_many(sessions, number, id).stream().await;
            primed(&mut stream).await;
            let session = &sessions[number % sessions.len()];
            let cancel = cancel((id + number) as u64, TIMED_OUT);
            assert_eq!(session.post(&cancel).send().await.status, 202);
        });
        join_all(giving_up).await;
        until_at(replica, GAVE_UP, 96.0).await;
    }
    let collecting = (0..MANY).map(|number| async move {
        let other = format!("{}", MANY - 1 - number);
        pair.upstream.release(&other);
        let answer = one_of_many(sessions, number, 2 * MANY).send().await.json();
        let text = &answer["result"]["content"][0]["text"];
        assert_eq!(*text, format!("{number}"), "{answer}");
    });
    join_all(collecting).await;
    assert_eq!(pair.upstream.executions() as usize, MANY);
}

const MANY: usize = 96;

/// The call of this number, whose result is its number, on one of the sessions.
fn one_of_many(sessions: &[Session], number: usize, id: usize) -> Request {
    let nonce = format!("{number}");
    let session = &sessions[number % sessions.len()];
    let call = session.calling("held", json!({"nonce": nonce, "says": "nonce"}));
    call.edit(|message| message["id"] = json!(id + number))
}

/// A modern client, which has one call.
trait Caller {
    /// The text of the result, unless the client hangs up before it comes.
    async fn tries(&self, nonce: &str, patience: Duration) -> Option<String>;
}

/// A client over plain HTTP, and what tells it from others.
struct Plain<F>(F);

impl<F: Fn(&str) -> Request> Caller for Plain<F> {
    async fn tries(&self, nonce: &str, patience: Duration) -> Option<String> {
        let answer = (self.0)(nonce).or_hang_up_after(patience).await?;
        Some(answer.into_text())
    }
}

/// Both clients hang up after each of two tries, and wait in the end.
async fn hang_up_in_turn(proxy: &Proxy, upstream: &Upstream, (a, b): (&impl Caller, &impl Caller)) {
    for number in 0..5 {
        let nonce = format!("{number}");
        let given_up = value(proxy, GAVE_UP).await.unwrap_or_default();
        let second = async {
            // The first call is of the first client.
            upstream.until_started(&nonce).await;
            b.tries(&nonce, CLOCK).await
        };
        let tried = tokio::join!(a.tries(&nonce, CLOCK), second);
        assert_eq!(tried, (None, None));
        let all_kept = are_kept(proxy, given_up + 2.0).await && {
            let tried = tokio::join!(b.tries(&nonce, CLOCK), a.tries(&nonce, CLOCK));
            assert_eq!(tried, (None, None));
            are_kept(proxy, given_up + 4.0).await
        };
        // On a busy machine a client may be late: then its call was cancelled.
        if !all_kept || upstream.tally(&nonce).cancelled > 0 {
            upstream.release(&nonce);
            continue;
        }
        upstream.release(&nonce);
        let got = tokio::join!(a.tries(&nonce, PATIENCE), b.tries(&nonce, PATIENCE));
        assert_eq!(got, (Some("call 1".into()), Some("call 2".into())));
        assert_runs(upstream, &nonce, 2);
        return;
    }
    panic!("in no round were all four calls kept");
}

async fn are_kept(proxy: &Proxy, count: f64) -> bool {
    let look = async || value(proxy, GAVE_UP).await == Some(count);
    try_eventually(SOON, look).await.is_ok()
}

/// Two clients that have these credentials.
async fn bearers(rig: &Rig, [first, second]: [&'static str; 2]) {
    rig.client().named(first).call("slow", json!({})).await;
    let of = |credential: &'static str| {
        let client = rig.client().without_tasks().named(credential);
        Plain(move |nonce: &str| client.calling("held", arguments(nonce)))
    };
    hang_up_in_turn(&rig.proxy, &rig.upstream, (&of(first), &of(second))).await;
}

async fn two_bearers_collect_each_their_own(era: Era) {
    let rig = Rig::start(era, config()).await;
    bearers(&rig, ["Bearer ann", "Bearer bob"]).await;
}

async fn two_bearers_whom_the_operator_knows_collect_each_their_own(era: Era) {
    let tokens = Tokens::new(&[("ann", "anns-token"), ("bob", "bobs-token")]);
    let rig = Rig::start(era, tokens.wanted_by(config())).await;
    bearers(&rig, ["Bearer anns-token", "Bearer bobs-token"]).await;
}

/// They show no credentials: what they say of themselves tells them apart, or else a header.
async fn two_programs_of_this_machine_collect_each_their_own(era: Era) {
    for programs in [
        [("one", "node/24"), ("two", "node/24")],
        [("one", "node/24"), ("one", "python/3")],
    ] {
        let rig = Rig::start(era, config()).await;
        rig.client().call("slow", json!({})).await.into_text();
        let [first, second] = programs.map(|(name, agent)| {
            let client = rig.client().without_tasks();
            Plain(move |nonce: &str| named(&client, nonce, name).header("user-agent", agent))
        });
        hang_up_in_turn(&rig.proxy, &rig.upstream, (&first, &second)).await;
    }
}

fn named(client: &Client, nonce: &str, name: &str) -> Request {
    let call = client.calling("held", arguments(nonce));
    call.edit(|message| {
        let info = "io.modelcontextprotocol/clientInfo";
        message["params"]["_meta"][info] = json!({"name": name, "version": "1"});
    })
}

/// A client with a certificate.
struct Certified<'a>(&'a Scene, Identity);

impl Caller for Certified<'_> {
    async fn tries(&self, nonce: &str, patience: Duration) -> Option<String> {
        let Self(scene, identity) = self;
        let address = scene.proxy.address();
        let stream = tls_client::connect(address, &[&scene.server], Some(identity)).await;
        let io = TokioIo::new(stream.unwrap());
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        // Dropped, the client is gone.
        let mut open = tokio::task::JoinSet::new();
        open.spawn(connection);
        let call = scene.client().without_tasks();
        let call = call.calling("held", arguments(nonce)).into_http();
        let asking = async {
            let response = sender.send_request(call).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        };
        let body = tokio::time::timeout(patience, asking).await.ok()?;
        let body = String::from_utf8(body.to_vec()).unwrap();
        let text = if body.starts_with('{') {
            body
        } else {
            last_event(&body)
        };
        let answer: Value = serde_json::from_str(&text).unwrap();
        let text = answer["result"]["content"][0]["text"].as_str();
        Some(text.unwrap_or_else(|| panic!("{answer}")).to_owned())
    }
}

#[tokio::test]
async fn two_certificates_collect_each_their_own() {
    let scene = Scene::start(config()).await;
    let certified = |name: &str| {
        let uri = format!("spiffe://example.org/agents/{name}");
        Certified(&scene, issue_to(&scene.clients, &[], &[&uri]))
    };
    let pair = (&certified("a"), &certified("b"));
    hang_up_in_turn(&scene.proxy, &scene.upstream, pair).await;
}

/// A gateway has one credential, and says in a header for whom it calls. The server gets that header.
async fn another_tenant_behind_one_credential_does_not_collect_it(era: Era) {
    let rig = Rig::start(era, config()).await;
    rig.client().call("slow", json!({})).await.into_text();
    let gateway = rig.client().without_tasks().named("Bearer gateway");
    let of = |tenant: &'static str| {
        let gateway = gateway.clone();
        Plain(move |nonce: &str| {
            let call = gateway.calling("held", arguments(nonce));
            call.header("x-tenant", tenant)
        })
    };
    let (mine, theirs) = (of("a"), of("b"));
    let nonce = kept(&rig, &mine).await;
    rig.upstream.release(&nonce);
    let finished = |tally: Tally| tally.finished == 1;
    rig.upstream.until(&nonce, "finished", finished).await;
    let got = theirs.tries(&nonce, PATIENCE).await;
    assert_eq!(got.as_deref(), Some("call 2"), "the other tenant's result");
}

/// A call that the client gave up. Returns its nonce. On a busy machine the client may be late.
async fn kept(rig: &Rig, caller: &impl Caller) -> String {
    for number in 0..5 {
        let nonce = format!("{number}");
        assert_eq!(caller.tries(&nonce, CLOCK).await, None);
        if are_kept(&rig.proxy, 1.0).await {
            return nonce;
        }
    }
    panic!("no call was kept");
}
