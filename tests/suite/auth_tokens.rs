//! A file of bearer tokens: who has none gets nowhere, and who gets a new one keeps its tasks.

use aws_lc_rs::digest::{SHA256, digest};
use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stdio_front::{Launched, modern};
use crate::support::client::{Answer, Client, Request};
use crate::support::{Config, Era, PATIENCE, Rig, TempDir, Upstream, in_both_eras, within};

in_both_eras!(
    nobody_gets_in_without_a_token,
    a_client_with_a_new_token_keeps_its_tasks,
    a_client_over_a_pipe_is_not_asked,
);

/// A file of tokens, and a configuration that wants one of them.
pub(crate) struct Tokens {
    directory: TempDir,
}

impl Tokens {
    pub(crate) fn new(clients: &[(&str, &str)]) -> Self {
        let tokens = Self {
            directory: TempDir::new(),
        };
        tokens.write(clients);
        tokens
    }

    fn write(&self, clients: &[(&str, &str)]) {
        let lines = clients.iter().map(|(name, token)| {
            let hash = digest(&SHA256, token.as_bytes());
            let hash: Vec<String> = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
            format!("{name}: {}\n", hash.concat())
        });
        self.directory.file("tokens", &lines.collect::<String>());
    }

    pub(crate) fn wanted_by(&self, config: Config) -> Config {
        let file = self.directory.path().join("tokens");
        config.section("auth", &format!("tokens_file = \"{}\"", file.display()))
    }
}

fn authenticate(answer: &Answer) -> &str {
    let header = answer.headers.get("www-authenticate");
    header.map_or("", |header| header.to_str().unwrap())
}

/// What anybody may send: calls, handshakes, streams, ends of sessions.
fn requests(client: &Client) -> [Request; 5] {
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    [
        client.calling("echo", json!({"text": "x"})),
        client.request("tasks/get", json!({"taskId": "x"})),
        client.post(initialize.to_string()),
        client.http(Method::GET, "/mcp"),
        client.http(Method::DELETE, "/mcp"),
    ]
}

async fn nobody_gets_in_without_a_token(era: Era) {
    let tokens = Tokens::new(&[("alice", "alices-token")]);
    let rig = Rig::start(era, tokens.wanted_by(Config::always())).await;
    let stranger = rig.client();
    for request in requests(&stranger) {
        let missing = request.clone().send().await;
        assert_eq!(missing.status, 401, "{}", missing.body);
        assert_eq!(authenticate(&missing), "Bearer");
        assert!(missing.json()["error"]["message"].is_string());

        let basic = request.clone().header("authorization", "Basic YTpi");
        assert_eq!(basic.send().await.status, 401);
        for wrong in [
            "Bearer bobs-token",
            "bearer alices-token2",
            "Bearer ALICES-TOKEN",
        ] {
            let refused = request.clone().header("authorization", wrong).send().await;
            assert_eq!(refused.status, 401, "{wrong}");
            let challenge = authenticate(&refused);
            assert!(
                challenge.starts_with("Bearer error=\"invalid_token\""),
                "{challenge}"
            );
            assert!(!refused.body.contains("token2") && !challenge.contains("token2"));
        }
        let twice = request.clone().also("authorization", "Bearer alices-token");
        let twice = twice.also("authorization", "Bearer alices-token");
        for malformed in [twice, request.header("authorization", "Bearer a b")] {
            let refused = malformed.send().await;
            assert_eq!(refused.status, 400, "{}", refused.body);
            let challenge = authenticate(&refused);
            assert!(
                challenge.starts_with("Bearer error=\"invalid_request\""),
                "{challenge}"
            );
        }
    }
    let metadata = stranger.page("/.well-known/oauth-protected-resource").await;
    assert_eq!(
        metadata.status, 404,
        "the server's metadata are not about our clients"
    );
    refuses_before_the_body(&rig).await;
    assert!(
        rig.upstream.received_of_clients().is_empty(),
        "{:?}",
        rig.upstream.received_of_clients()
    );

    let alice = rig.client().named("Bearer alices-token");
    alice.call("echo", json!({"text": "x"})).await.into_task();
    let log = rig.proxy.log();
    assert!(
        !log.contains("alices-token") && !log.contains("bobs-token"),
        "{log}"
    );
}

/// The answer comes although nothing of the announced body did.
async fn refuses_before_the_body(rig: &Rig) {
    let address = rig.proxy.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    within(PATIENCE, "an answer", stream.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

async fn a_client_with_a_new_token_keeps_its_tasks(era: Era) {
    let tokens = Tokens::new(&[("alice", "first"), ("bob", "bobs")]);
    let rig = Rig::start(era, tokens.wanted_by(Config::always())).await;
    let before = rig.client().named("Bearer first");
    let task = before.call("held", json!({"nonce": "n"})).await.into_task();
    tokens.write(&[("alice", "second"), ("bob", "bobs")]);
    rig.proxy.hang_up();
    rig.proxy.until_said("read anew", 1).await;

    let old = before.asking("tasks/get", &task).send().await;
    assert_eq!(old.status, 401);
    let bob = rig.client().named("Bearer bobs");
    let foreign = bob.asking("tasks/get", &task).send().await;
    assert_eq!(foreign.refusal(), (400, -32602));
    let after = rig.client().named("Bearer second");
    rig.upstream.until_started("n").await;
    rig.upstream.release("n");
    after.until(&task, "completed").await;

    // What is wrong with the file changes nothing.
    tokens.directory.file("tokens", "alice: nonsense");
    rig.proxy.hang_up();
    rig.proxy.until_said("the old files stay in use", 1).await;
    after.until(&task, "completed").await;
    assert!(!rig.proxy.log().contains("nonsense"));
}

/// It started raincheck itself.
async fn a_client_over_a_pipe_is_not_asked(era: Era) {
    let tokens = Tokens::new(&[("alice", "alices-token")]);
    let upstream = Upstream::start(era).await;
    let config = tokens.wanted_by(Config::never());
    let mut launched = Launched::with(&["--upstream", &upstream.url()], &config);
    let list = modern(json!({}));
    let answer = launched.request(json!(1), "tools/list", list).await;
    assert!(answer["result"]["tools"].is_array(), "{answer}");
}
