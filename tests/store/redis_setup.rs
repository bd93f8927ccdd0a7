//! Which Redis is refused at the start, and what is said then.

use std::sync::Arc;
use std::time::Duration;

use raincheck::store::redis::{
    Moved, Namespace, Redis, RedisOpenError, RedisOptions, move_namespace,
};
use raincheck::store::{Store as _, StoreHealth};
use raincheck::task::id::Incarnation;
use redis::aio::MultiplexedConnection;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::eventually::eventually;
use crate::redis_server::RedisServer;
use crate::rig::{PATIENCE, create_until, done, hour, raw};

#[tokio::test]
async fn a_server_that_may_evict_tasks_is_refused_unless_allowed() {
    let server = RedisServer::with(&["--maxmemory-policy", "volatile-lru"]);
    let mut options = options(&server.url());
    let refused = open(&options).await.unwrap_err();
    assert!(
        matches!(&refused, RedisOpenError::Eviction { policy, .. } if policy == "volatile-lru")
    );
    assert!(refused.to_string().contains("noeviction"), "{refused}");
    options.allow_eviction = true;
    let store = open(&options).await.unwrap();
    assert_eq!(store.health(), StoreHealth::Good);
}

#[tokio::test]
async fn a_policy_that_is_changed_later_is_noticed_and_so_is_its_repair() {
    let server = RedisServer::start();
    let mut options = options(&server.url());
    options.check_interval = Duration::from_millis(20);
    let store = open(&options).await.unwrap();
    let mut raw = raw(&server).await;
    for (policy, good) in [("allkeys-lru", false), ("noeviction", true)] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory-policy").arg(policy);
        set.exec_async(&mut raw).await.unwrap();
        let what = format!("{policy} is good: {good}");
        let noticed = async || (store.health() == StoreHealth::Good) == good;
        eventually(PATIENCE, &what, noticed).await;
    }
}

#[tokio::test]
async fn a_server_that_denies_config_and_info_is_used() {
    let server = RedisServer::start();
    let mut raw = raw(&server).await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER")
        .arg("tight")
        .arg("on")
        .arg(">pw")
        .arg("~{ns:*")
        .arg("+@all");
    user.arg("-config").arg("-info").arg("-script");
    user.exec_async(&mut raw).await.unwrap();
    let options = options(&format!("{}&user=tight&pass=pw", server.url()));
    let store = open(&options).await.unwrap();
    done(store.commit(&create_until(hour())).await.unwrap());
}

#[tokio::test]
async fn a_command_that_the_user_may_not_run_is_named_at_the_start() {
    let server = RedisServer::start();
    let mut raw = raw(&server).await;
    let refused = async |raw: &mut MultiplexedConnection, rights: &[&str]| {
        let mut user = redis::cmd("ACL");
        user.arg(&["SETUSER", "tight", "reset", "on", ">pw"])
            .arg(rights);
        user.exec_async(raw).await.unwrap();
        let options = options(&format!("{}&user=tight&pass=pw", server.url()));
        open(&options).await.unwrap_err()
    };
    let denied = refused(&mut raw, &["~{ns:*", "+@all", "-hset", "-xrevrange"]).await;
    assert!(
        denied.to_string().contains("give it +hset +xrevrange ("),
        "{denied}"
    );
    assert!(!denied.is_away());
    for right in ["time", "sadd", "hsetnx", "srem"] {
        let without = format!("-{right}");
        let denied = refused(&mut raw, &["~{ns:*", "+@all", &without]).await;
        let named = format!("give it +{right} (");
        assert!(denied.to_string().contains(&named), "{denied}");
    }
    let denied = refused(&mut raw, &["~{ns:*", "+@all", "-evalsha"]).await;
    assert!(matches!(denied, RedisOpenError::Scripts { .. }), "{denied}");
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut raw)
        .await
        .unwrap();
    assert!(keys.is_empty(), "nothing is left behind: {keys:?}");
    // The keys are what is missing, and not the commands.
    let denied = refused(&mut raw, &["~other:*", "+@all"]).await;
    assert!(
        matches!(denied, RedisOpenError::Unreachable { .. }),
        "{denied}"
    );
}

#[tokio::test]
async fn what_is_probably_wrong_with_the_url_is_told() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    let refused = open(&options(&server.url())).await.unwrap_err();
    assert!(
        refused.to_string().ends_with("redis://:PASSWORD@HOST)"),
        "{refused}"
    );

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let web = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, answer)
            .await
            .unwrap();
        stream
    });
    let refused = open(&options(&format!("redis://127.0.0.1:{port}")))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("(what answers there is no Redis)"),
        "{refused}"
    );
    drop(web);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let refused = open(&options(&format!("rediss://127.0.0.1:{port}")))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::NoTls { .. }),
        "{refused:?}"
    );
    assert!(refused.is_away());
}

#[tokio::test]
async fn a_namespace_serves_one_upstream() {
    let server = RedisServer::start();
    let mut options = options(&server.url());
    options.serves = Some("weather, 2025-11-25".into());
    open(&options).await.unwrap();
    open(&options).await.unwrap();
    options.serves = Some("billing, 2026-07-28".into());
    let refused = open(&options).await.unwrap_err().to_string();
    assert!(
        refused.contains("weather") && refused.contains("billing"),
        "{refused}"
    );
}

#[tokio::test]
async fn whoever_only_looks_takes_no_namespace_and_is_told_whose_it_is() {
    let server = RedisServer::start();
    let mut options = options(&server.url());
    options.serves = Some("weather, 2025-11-25".into());
    Redis::dry_run(&options, &[]).await.unwrap();
    let mut raw = raw(&server).await;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut raw)
        .await
        .unwrap();
    assert!(keys.is_empty(), "{keys:?}");
    open(&options).await.unwrap();
    Redis::dry_run(&options, &[]).await.unwrap();
    options.serves = Some("billing, 2026-07-28".into());
    let refused = Redis::dry_run(&options, &[]).await.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::Foreign { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_without_the_password() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    for url in [
        format!("{}&pass=hunter2", server.url()),
        "redis+unix:///nowhere/at/all?pass=hunter2".to_owned(),
        "redis://:hunter2@127.0.0.1:1/0".to_owned(),
        "http://:hunter2@127.0.0.1/".to_owned(),
    ] {
        let error = open(&options(&url)).await.unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hunter2"), "{told}");
        assert!(!error.to_string().contains('\n'), "{told}");
    }
}

/// A server whose only user may do what docs/operations.md says, and nothing else.
pub(crate) struct Tight(RedisServer);

impl Tight {
    pub(crate) fn start() -> Self {
        let page = include_str!("../../docs/operations.md");
        let (_, line) = page.split_once("ACL SETUSER raincheck ").unwrap();
        let (line, _) = line.split_once('\n').unwrap();
        let line = line
            .replace(">PASSWORD", ">pw")
            .replace("{my-service:", "{");
        let server = RedisServer::start();
        let mut connection = server.connect();
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg("raincheck");
        for word in line.split_whitespace() {
            set.arg(word);
        }
        set.exec(&mut connection).unwrap();
        let mut off = redis::cmd("ACL");
        off.arg("SETUSER").arg("default").arg("off");
        off.exec(&mut connection).unwrap();
        Self(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("{}&user=raincheck&pass=pw", self.0.url())
    }
}

fn options(url: &str) -> RedisOptions {
    RedisOptions::new(url, Namespace::parse("ns").unwrap())
}

async fn open(options: &RedisOptions) -> Result<Arc<Redis>, RedisOpenError> {
    Redis::open(options, &TaskTracker::new(), &CancellationToken::new())
        .await
        .map(Arc::new)
}

/// A service moves with its tasks, once its replicas in front of the old address have stopped.
#[tokio::test]
async fn a_namespace_moves_with_its_service() {
    let server = RedisServer::start();
    let mut options = options(&server.url());
    options.serves = Some("http://127.0.0.1:1/mcp".into());
    let moved =
        async |options: &RedisOptions, by_force| move_namespace(options, by_force).await.unwrap();
    assert_eq!(moved(&options, false).await, Moved::Unused);
    let store = open(&options).await.unwrap();
    assert_eq!(moved(&options, false).await, Moved::Already);
    let task = create_until(hour());
    done(store.commit(&task).await.unwrap());
    let owner = Incarnation::new("one");
    store
        .beat(Some(&owner), Duration::from_mins(1))
        .await
        .unwrap();

    let from = options
        .serves
        .replace("http://localhost:1/mcp".into())
        .unwrap();
    let replicas = vec!["one".to_owned()];
    let alive = Moved::Alive {
        from: from.clone(),
        replicas,
    };
    assert_eq!(moved(&options, false).await, alive);
    let refused = open(&options).await.unwrap_err().to_string();
    assert!(refused.contains("raincheck store move"), "{refused}");
    // Its lease has ended.
    store.beat(Some(&owner), Duration::ZERO).await.unwrap();
    assert_eq!(moved(&options, false).await, Moved::Done { from });
    assert_eq!(moved(&options, false).await, Moved::Already);
    let store = open(&options).await.unwrap();
    assert!(store.load(task.id).await.unwrap().is_some());

    store
        .beat(Some(&owner), Duration::from_mins(1))
        .await
        .unwrap();
    let from = options.serves.replace("http://[::1]:1/mcp".into()).unwrap();
    assert_eq!(moved(&options, true).await, Moved::Done { from });
}
