//! Scopes: what a token does not allow is refused, for a call and for its task, on every way.

use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::issuer::Issuer;
use crate::support::session::{NEWEST, Session, accept};
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_call_without_its_scope_is_refused,
    a_task_is_out_of_reach_without_its_scope,
    a_ticket_is_out_of_reach_without_its_scope,
    what_is_for_every_tool_is_told_at_the_door,
);

struct Scene {
    issuer: Issuer,
    rig: Rig,
}

impl Scene {
    async fn start(era: Era, config: Config) -> Self {
        let issuer = Issuer::start().await;
        let rig = Rig::start(era, issuer.wanted_by(config, "")).await;
        rig.proxy
            .until_said("the keys of an issuer were fetched", 1)
            .await;
        Self { issuer, rig }
    }

    /// Always the same caller, with these scopes.
    fn client(&self, scopes: &str) -> Client {
        let claims = json!({"scope": scopes});
        let token = self.issuer.token_with("alice", claims, json!({}));
        self.rig.client().named(token)
    }
}

#[track_caller]
fn assert_lacks(answer: &Answer, scopes: &str) {
    assert_eq!(answer.refusal(), (403, -32600), "{}", answer.body);
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    let expected = format!("scope=\"{scopes}\", error=\"insufficient_scope\"");
    assert!(challenge.contains(&expected), "{challenge}");
}

async fn a_call_without_its_scope_is_refused(era: Era) {
    for config in [Config::always(), Config::never()] {
        let config = config.tool("held", "scopes = [\"run\", \"long\"]");
        let scene = Scene::start(era, config).await;
        for scopes in ["", "run", "long", "runs long", "RUN long"] {
            let refused = scene.client(scopes).call("held", json!({})).await;
            assert_lacks(&refused, "run long");
        }
        let session = Session::open(scene.client("run"), "2025-06-18").await;
        assert_lacks(
            &session.calling(1, "held", json!({})).send().await,
            "run long",
        );
        let told = json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "held"}});
        assert!(session.post(&told).send().await.status >= 400);
        assert_eq!(scene.rig.upstream.executions(), 0);
        let other = session
            .calling(2, "echo", json!({"text": "x"}))
            .send()
            .await;
        assert_eq!(other.json()["result"]["content"][0]["text"], "x");

        let allowed = scene.client("more long run");
        scene.rig.upstream.release("n");
        let answer = allowed.call("held", json!({"nonce": "n"})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        scene.rig.upstream.until_started("n").await;
    }
}

/// Also for its own caller: somebody narrowed the token on purpose.
async fn a_task_is_out_of_reach_without_its_scope(era: Era) {
    let config = Config::always().tool("ask", "scopes = \"run\"");
    let config = config.section("events", "enabled = true");
    let scene = Scene::start(era, config).await;
    let (wide, narrow) = (scene.client("run"), scene.client("read"));
    let event = json!({"name": "raincheck.task.updated"});
    let first = wide.request("events/poll", event.clone()).send().await;
    let cursor = first.into_result()["cursor"].take();
    let task = wide.call("ask", json!({})).await.into_task();
    let before = wide.until(&task, "input_required").await;
    for (client, told) in [(&wide, 1), (&narrow, 0)] {
        let mut since = event.clone();
        since["cursor"] = cursor.clone();
        let polled = client.request("events/poll", since).send().await;
        let polled = polled.into_result();
        assert_eq!(polled["events"].as_array().unwrap().len(), told, "{polled}");
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let request = narrow.asking(method, &task).edit(|message| {
            message["params"]["inputResponses"] = json!({});
        });
        assert_lacks(&request.send().await, "run");
    }
    let uri = format!("raincheck://task/{}/result", task.id);
    let read = narrow.request("resources/read", json!({"uri": uri}));
    assert_lacks(&read.header("mcp-name", &uri).send().await, "run");
    let mut stream = narrow.listen(&[&task]).await;
    let acknowledged = stream.next().await;
    assert_eq!(
        acknowledged["params"]["notifications"]["taskIds"],
        json!([])
    );
    let after = wide.get(&task).await;
    assert_eq!(after["lastUpdatedAt"], before["lastUpdatedAt"]);

    let session = Session::open(wide.clone(), NEWEST).await;
    let narrowed = Session::open(narrow, NEWEST).await;
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let asked = narrowed.request(1, method, json!({"taskId": task.id}));
        assert_lacks(&asked.send().await, "run");
    }
    let (key, _) = before["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let question = format!("raincheck/{}/{key}", task.id);
    let answer = json!({"jsonrpc": "2.0", "id": question, "result": accept("Ada")});
    assert_lacks(&narrowed.post(&answer).send().await, "run");
    let after = wide.get(&task).await;
    assert_eq!(after["inputRequests"], before["inputRequests"]);
    let listed = async |session: &Session| -> Value {
        let listed = session.request(2, "tasks/list", json!({})).send().await;
        listed.json()["result"]["tasks"].take()
    };
    assert_eq!(listed(&session).await.as_array().map(Vec::len), Some(1));
    assert_eq!(listed(&narrowed).await, json!([]));
    // Nobody else learns that there is a task.
    let bob = scene
        .issuer
        .token_with("bob", json!({"scope": "read"}), json!({}));
    let foreign = scene
        .rig
        .client()
        .named(bob)
        .asking("tasks/get", &task)
        .send()
        .await;
    assert_eq!(foreign.refusal(), (400, -32602));
    wide.cancel(&task).await.assert_acknowledged();
}

async fn a_ticket_is_out_of_reach_without_its_scope(era: Era) {
    let config = Config::auto("10s").terms("companion_tools = true");
    let config = config.tool("held", "scopes = \"run\"\nfallback_after = \"100ms\"");
    let scene = Scene::start(era, config).await;
    let wide = scene.client("run").without_tasks();
    let narrow = scene.client("").without_tasks();
    let result = wide.call("held", json!({"nonce": "n"})).await.into_result();
    let ticket = result["structuredContent"]["ticket"].as_str().unwrap();
    for tool in ["task_status", "task_result", "task_cancel", "task_answer"] {
        let refused = narrow.call(tool, json!({"ticket": ticket})).await;
        assert_lacks(&refused, "run");
    }
    let listed = async |client: &Client| client.call("task_status", json!({})).await.into_text();
    assert!(listed(&wide).await.contains(ticket));
    assert!(!listed(&narrow).await.contains(ticket), "in a list");
    scene.rig.upstream.release("n");
    let result = wide.call("task_result", json!({"ticket": ticket})).await;
    assert_eq!(result.into_text(), "released");
}

async fn what_is_for_every_tool_is_told_at_the_door(era: Era) {
    let scene = Scene::start(era, Config::always().terms("scopes = \"tools\"")).await;
    let stranger = scene.rig.client().call("echo", json!({"text": "x"})).await;
    assert_eq!(stranger.status, 401);
    assert_eq!(
        stranger.headers["www-authenticate"],
        "Bearer scope=\"tools\""
    );
    assert_lacks(
        &scene.client("").call("echo", json!({"text": "x"})).await,
        "tools",
    );
    let listed = scene
        .client("")
        .request("tools/list", json!({}))
        .send()
        .await;
    assert_eq!(listed.status, 200);
    scene
        .client("tools")
        .call("echo", json!({"text": "x"}))
        .await
        .into_task();
}
