//! Operators with names and rights: what each may do, and what is recorded under whose name.

use serde_json::{Value, json};

use crate::operators_tasks::post;
use crate::support::client::Task;
use crate::support::operator::{raincheck, raincheck_as};
use crate::support::pair::Pair;
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Rig, eventually, in_both_eras};

in_both_eras!(
    who_cancelled_a_task_is_shown,
    who_cancelled_is_known_when_the_record_is_gone,
);

/// The token without a name.
const NAMELESS: &str = "correct-horse-battery";
const ADA: &str = "battery-horse-correct";
/// The token of rita, who may read.
const RITA: &str = "horse-battery-correct";

fn with_operators(config: Config) -> Config {
    let admin = format!(
        "listen = \"127.0.0.1:0\"\nshow_payloads = true\ntoken = {NAMELESS:?}\n\
         [[admin.operators]]\nname = \"ada\"\ntoken = {ADA:?}\n\
         [[admin.operators]]\nname = \"rita\"\ntoken = {RITA:?}\nrole = \"read\""
    );
    config.section("admin", &admin)
}

/// The operator with this token.
async fn operator(proxy: &Proxy, token: &str) -> Client {
    let operators = Client::of(proxy.operators().await);
    operators.named(format!("Bearer {token}"))
}

async fn page(operator: &Client, path: &str) -> Value {
    operator.page(path).await.of_status(200).unwrap().json()
}

async fn done(operator: &Client, path: &str, body: Value) -> Value {
    let answer = post(operator, path, body).await;
    assert!(answer.status < 300, "{path}: {}", answer.body);
    answer.json()
}

async fn failed(client: &Client) -> Task {
    let task = client.call("error", json!({})).await.into_task();
    client.until(&task, "failed").await;
    task
}

async fn held(client: &Client) -> Task {
    client.call("held", json!({})).await.into_task()
}

/// The lines of the log about this action of an operator.
fn audited(proxy: &Proxy, action: &str) -> Vec<String> {
    let action = format!("action=\"{action}\"");
    let log = proxy.log();
    let lines = log.lines();
    let lines = lines.filter(|line| line.contains("an operator acted") && line.contains(&action));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn an_operator_who_may_read_does_nothing_else() {
    let rig = Rig::start(Era::Modern, with_operators(Config::always())).await;
    let client = rig.client();
    let (task, failure) = (held(&client).await, failed(&client).await);
    let rita = operator(&rig.proxy, RITA).await;
    let one = format!("/tasks/{}", task.id);
    for path in [
        "/tasks", &one, "/tools", "/level", "/config", "/metrics", "/readyz",
    ] {
        assert_eq!(rita.page(path).await.status, 200, "{path}");
    }
    let config = rita.page("/config").await.body;
    for token in [NAMELESS, ADA, RITA] {
        assert!(!config.contains(token), "{config}");
    }
    let about = page(&rita, "/about").await;
    assert_eq!(about["operator"], json!({"name": "rita", "role": "read"}));

    let failure = format!("/tasks/{}", failure.id);
    let pause = json!({"tools": "echo", "seconds": 60});
    for (path, body) in [
        (format!("{one}/cancel"), json!({})),
        (format!("{one}/cancel?tree=true"), json!({})),
        (format!("{one}/answer"), json!({"q": {"action": "decline"}})),
        (format!("{failure}/ack"), json!({})),
        (format!("{failure}/rerun"), json!({"may_run_twice": true})),
        ("/tools/pause".into(), pause),
        ("/tools/resume".into(), json!({"tools": "echo"})),
        ("/level".into(), json!({"level": "debug"})),
        ("/reload".into(), json!({})),
        ("/drain".into(), json!({})),
    ] {
        let refused = post(&rita, &path, body).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.body);
        assert!(
            refused.body.contains("rita may read and not act"),
            "{path}: {}",
            refused.body
        );
    }
    let refused = raincheck_as(RITA, &rig.proxy, &["tasks", "cancel", &task.id]).await;
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(complaint.contains("rita may read"), "{complaint}");
    let unknown = raincheck(&rig.proxy, &["tasks", "list"]).await;
    let complaint = String::from_utf8_lossy(&unknown.stderr);
    assert!(complaint.contains("RAINCHECK_ADMIN__TOKEN"), "{complaint}");

    assert_eq!(page(&rita, &one).await["state"], "working");
    assert_eq!(page(&rita, "/tools").await["paused"], json!([]));
    assert_eq!(page(&rita, "/level").await["level"], "info");
    let ready = page(&rita, "/readyz").await;
    assert_eq!(ready["draining"], false, "{ready}");
    let shown = page(&rita, &failure).await;
    assert!(shown["acknowledged"].is_null(), "{shown}");
    let log = rig.proxy.log();
    assert!(!log.contains("an operator acted"), "{log}");
}

#[tokio::test]
async fn what_operators_do_is_in_the_log_under_their_names() {
    let mut rig = Rig::start(Era::Modern, with_operators(Config::always())).await;
    let client = rig.client();
    let asking = client.call("ask", json!({})).await.into_task();
    client.until(&asking, "input_required").await;
    let (first, second, failure) = (
        held(&client).await,
        held(&client).await,
        failed(&client).await,
    );
    let ada = operator(&rig.proxy, ADA).await;
    let about = page(&ada, "/about").await;
    assert_eq!(about["operator"], json!({"name": "ada", "role": "act"}));
    let path = format!("/tasks/{}", asking.id);
    let key = page(&ada, &path).await["open_questions"][0]["key"].clone();
    let answer = json!({ key.as_str().unwrap(): {"action": "accept", "content": {"name": "Ada"}} });
    done(&ada, &format!("{path}/answer"), answer).await;
    done(&ada, &format!("/tasks/{}/cancel", first.id), json!({})).await;
    let failed = format!("/tasks/{}", failure.id);
    // Whatever name the request has.
    let said = done(&ada, &format!("{failed}/ack"), json!({"by": "bob"})).await;
    assert_eq!(said["acknowledged"]["by"], "ada", "{said}");
    let twice = json!({"may_run_twice": true, "by": "bob"});
    done(&ada, &format!("{failed}/rerun"), twice).await;
    assert_eq!(page(&ada, &failed).await["acknowledged"]["by"], "ada");
    let pause = json!({"tools": "echo", "seconds": 60, "reason": "disk"});
    let paused = done(&ada, "/tools/pause", pause).await;
    assert_eq!(paused["paused"][0]["by"], "ada", "{paused}");
    let shown = raincheck_as(ADA, &rig.proxy, &["tools", "paused"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(", by ada: disk"), "{shown}");
    let refused = client.call("echo", json!({})).await;
    assert!(
        refused.body.contains("(disk)") && !refused.body.contains("ada"),
        "{}",
        refused.body
    );
    done(&ada, "/tools/resume", json!({"tools": "echo"})).await;
    done(&ada, "/level", json!({"level": "info"})).await;
    done(&ada, "/reload", json!({})).await;

    // The token without a name takes the name that the request has, and acts without one.
    let nameless = operator(&rig.proxy, NAMELESS).await;
    let about = page(&nameless, "/about").await;
    assert_eq!(about["operator"], json!({"name": null, "role": "act"}));
    let said = done(&nameless, &format!("{failed}/ack"), json!({"by": "bob"})).await;
    assert_eq!(said["acknowledged"]["by"], "bob", "{said}");
    let path = format!("/tasks/{}/cancel", second.id);
    done(&nameless, &path, json!({})).await;
    done(&ada, "/drain", json!({})).await;
    rig.proxy.ended().await;
    each_action_is_audited(&rig.proxy);
    let log = rig.proxy.log();
    for token in [NAMELESS, ADA] {
        assert!(!log.contains(token), "{log}");
    }
}

/// The log has what ada did, and the two things that somebody without a name did.
fn each_action_is_audited(proxy: &Proxy) {
    for action in [
        "answer",
        "cancel",
        "acknowledge",
        "rerun",
        "pause",
        "resume",
        "level",
        "reload",
        "drain",
    ] {
        let lines = audited(proxy, action);
        let by_ada = lines
            .iter()
            .filter(|line| line.contains("operator=\"ada\""));
        // A line for each task: the one that failed, and the one that was begun.
        let expected = if action == "rerun" { 2 } else { 1 };
        assert_eq!(by_ada.count(), expected, "{action}: {lines:#?}");
        let nameless = lines.iter().filter(|line| !line.contains("operator="));
        let expected = usize::from(["cancel", "acknowledge"].contains(&action));
        assert_eq!(nameless.count(), expected, "{action}: {lines:#?}");
    }
}

async fn who_cancelled_a_task_is_shown(era: Era) {
    let pair = Pair::with(era, "", with_operators).await;
    let client = pair.at_a();
    let [by_client, by_ada, by_nobody] = [
        held(&client).await,
        held(&client).await,
        held(&client).await,
    ];
    client.cancel(&by_client).await.assert_acknowledged();
    let ada = operator(&pair.b, ADA).await;
    let path = format!("/tasks/{}/cancel?tree=true", by_ada.id);
    done(&ada, &path, json!({})).await;
    let nameless = operator(&pair.b, NAMELESS).await;
    let path = format!("/tasks/{}/cancel", by_nobody.id);
    done(&nameless, &path, json!({})).await;
    for (task, word, name, what) in [
        (&by_client, "client", None, "cancelled by its client"),
        (
            &by_ada,
            "operator",
            Some("ada"),
            "cancelled by the operator ada",
        ),
        (&by_nobody, "operator", None, "cancelled by an operator"),
    ] {
        let shown = page(&ada, &format!("/tasks/{}", task.id)).await;
        assert_eq!(shown["cancelled_by"], word, "{shown}");
        assert_eq!(shown["operator"].as_str(), name, "{shown}");
        let shown = raincheck_as(RITA, &pair.a, &["tasks", "show", &task.id]).await;
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains(what), "{shown}");
        // Clients see what they saw before.
        let seen = client.get(task).await.to_string();
        assert!(
            !seen.contains("ada") && !seen.contains("operator"),
            "{seen}"
        );
    }
    let list = raincheck_as(RITA, &pair.a, &["tasks", "list"]).await;
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(
        list.contains("by ada") && list.contains("by an operator"),
        "{list}"
    );
}

async fn who_cancelled_is_known_when_the_record_is_gone(era: Era) {
    let config =
        with_operators(Config::always().terms("max_duration = \"2s\"\nretention = \"1s\""));
    let rig = Rig::start(era, config).await;
    let task = held(&rig.client()).await;
    let ada = operator(&rig.proxy, ADA).await;
    done(&ada, &format!("/tasks/{}/cancel", task.id), json!({})).await;
    let path = format!("/tasks/{}", task.id);
    eventually(PATIENCE, "the record is gone", async || {
        let shown = page(&ada, &path).await;
        if shown["kept"].is_string() {
            Ok(())
        } else {
            Err(shown)
        }
    })
    .await;
    let shown = page(&ada, &path).await;
    assert_eq!(
        (&shown["cancelled_by"], &shown["operator"]),
        (&json!("operator"), &json!("ada")),
        "{shown}"
    );
    let last = shown["timeline"].as_array().unwrap().last().unwrap();
    assert_eq!(last["what"], "cancelled by the operator ada", "{shown}");
    let list = page(&ada, "/tasks?outcome=cancelled").await;
    assert_eq!(list["tasks"][0]["operator"], "ada", "{list}");
}
