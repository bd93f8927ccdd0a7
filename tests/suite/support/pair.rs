//! Two replicas on one Redis, in front of one server.

use std::time::Duration;

use super::{Client, Config, Era, PATIENCE, Proxy, Upstream, answer::Task, eventually};
use crate::redis_server::RedisServer;

/// The seal key of both replicas, so that each replica can read what the other replica sealed.
pub(crate) const SEAL_KEY: &str =
    "1f2e3d4c5b6a79880f1e2d3c4b5a69781f2e3d4c5b6a79880f1e2d3c4b5a6978";

pub(crate) struct Pair {
    pub(crate) a: Proxy,
    pub(crate) b: Proxy,
    pub(crate) upstream: Upstream,
    pub(crate) redis: RedisServer,
    config: Config,
}

impl Pair {
    /// Starts two replicas, each of which can carry on the calls of the other.
    pub(crate) async fn start(era: Era, terms: &str) -> Self {
        Self::with(era, terms, |config| {
            config
                .section("upstream", "shared = true\ntrust_annotations = true")
                .store(&format!("seal_key = {SEAL_KEY:?}"))
        })
        .await
    }

    /// In front of a server that keeps events.
    pub(crate) async fn with(era: Era, terms: &str, more: impl FnOnce(Config) -> Config) -> Self {
        let upstream = Upstream::start(era).await;
        upstream.keep_events();
        Self::of(upstream, more(Config::always().terms(terms))).await
    }

    /// In front of this server, with this configuration for both.
    pub(crate) async fn of(upstream: Upstream, config: Config) -> Self {
        let redis = RedisServer::start();
        let config = config.redis(&redis.url());
        let a = replica(&config, "a", &upstream).await;
        let b = replica(&config, "b", &upstream).await;
        Self {
            a,
            b,
            upstream,
            redis,
            config,
        }
    }

    /// Starts one more replica with the same configuration.
    pub(crate) async fn another(&self, id: &str) -> Proxy {
        replica(&self.config, id, &self.upstream).await
    }

    /// The record as it lies in Redis.
    pub(crate) async fn record(&self, task: &Task) -> String {
        String::from_utf8(self.record_bytes(task).await).unwrap()
    }

    /// The same, of a record that may be sealed.
    pub(crate) async fn record_bytes(&self, task: &Task) -> Vec<u8> {
        let mut read = redis::cmd("HGET");
        read.arg(record_key(task)).arg("d");
        read.query_async(&mut self.connect().await).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.redis.url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    /// Waits until the record has a resume point. It is written a moment after the stream became resumable,
    /// and until then no other replica can carry the call on.
    pub(crate) async fn until_resumable(&self, task: &Task) {
        let what = "where to resume is written down";
        self.until_record(PATIENCE, task, what, r#""resume":"#)
            .await;
    }

    pub(crate) async fn until_record(
        &self,
        patience: Duration,
        task: &Task,
        what: &str,
        text: &str,
    ) {
        eventually(patience, what, async || {
            let record = self.record(task).await;
            let is_so = record.contains(text);
            is_so.then_some(()).ok_or(record)
        })
        .await;
    }

    pub(crate) fn at_a(&self) -> Client {
        Client::of(self.a.address())
    }

    pub(crate) fn at_b(&self) -> Client {
        Client::of(self.b.address())
    }
}

async fn replica(config: &Config, id: &str, upstream: &Upstream) -> Proxy {
    let replica = format!("lease = \"3s\"\nid = {id:?}");
    let config = config.clone().section("replica", &replica);
    config.start(&upstream.url()).await
}

pub(crate) fn record_key(task: &Task) -> String {
    format!("{{suite:00}}:t:{}", task.id)
}
