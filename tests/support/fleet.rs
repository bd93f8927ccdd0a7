//! Several Redis servers that belong together, on loopback: a cluster, or a primary with a replica
//! and Sentinels. Gone when the test ends.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Cmd, Connection, FromRedisValue};

use crate::directory::TempDir;
use crate::eventually::eventually_blocking;
use crate::ports::ReservedPort;
use crate::redis_server::RedisServer;

/// The longest wait until the servers know each other. No event announces that, so each server is polled.
const PATIENCE: Duration = Duration::from_secs(20);

/// Three primaries that share the slots and keep everything on disk.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<RedisServer>,
    ports: [ReservedPort; 3],
    _buses: [ReservedPort; 3],
}

impl Cluster {
    pub(crate) fn start() -> Self {
        // Each node needs a second port for the cluster bus. It is chosen explicitly, because the default
        // (the port plus 10,000) may be taken.
        let (ports, buses) = (three_ports(), three_ports());
        let numbers = || {
            let pairs = ports.iter().zip(&buses);
            pairs.map(|(port, bus)| (port.number().to_string(), bus.number().to_string()))
        };
        let nodes = numbers().map(|(port, bus)| {
            RedisServer::with(&[
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1000",
                "--appendonly",
                "yes",
                // With "everysec" an acknowledged write waits in memory while a sync is under way.
                "--appendfsync",
                "always",
            ])
        });
        let (nodes, numbers): (Vec<_>, Vec<_>) = (nodes.collect(), numbers().collect());
        let cluster = Self {
            nodes,
            ports,
            _buses: buses,
        };
        for (at, (from, to)) in [(0, 5461), (5462, 10922), (10923, 16383)]
            .iter()
            .enumerate()
        {
            let mut node = cluster.nodes[at].connect();
            let (from, to) = (from.to_string(), to.to_string());
            let epoch = (at + 1).to_string();
            ask::<()>(&mut node, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            ask::<()>(&mut node, &["CLUSTER", "ADDSLOTSRANGE", &from, &to]);
        }
        // MEET comes last, because a node that knows other nodes refuses to set its epoch.
        let mut first = cluster.nodes[0].connect();
        for (port, bus) in numbers {
            ask::<()>(&mut first, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        cluster.wait();
        cluster
    }

    pub(crate) fn url(&self) -> String {
        // The others are learned.
        format!(
            "redis-cluster://127.0.0.1:{},127.0.0.1:{}",
            self.ports[0].number(),
            self.ports[1].number()
        )
    }

    /// Waits until every node knows every other node and all slots are served.
    pub(crate) fn wait(&self) {
        for node in &self.nodes {
            let mut connection = node.connect();
            eventually_blocking(PATIENCE, "the cluster is whole", || {
                // A node that is still loading its file refuses even this.
                let info = redis::cmd("CLUSTER").arg("INFO").query(&mut connection);
                let info: String = info.map_err(|error| error.to_string())?;
                let is_whole =
                    info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3");
                if is_whole { Ok(()) } else { Err(info) }
            });
        }
    }
}

/// A primary, its replica and three Sentinels that watch them as `main`.
#[derive(Debug)]
pub(crate) struct Sentinels {
    /// At first, the first is the primary.
    pub(crate) servers: Vec<RedisServer>,
    monitors: Vec<Sentinel>,
    _ports: [ReservedPort; 2],
}

impl Sentinels {
    pub(crate) fn start() -> Self {
        let ports = [ReservedPort::new(), ReservedPort::new()];
        let [primary, replica] = ports.each_ref().map(|port| port.number().to_string());
        let server = |port: &str, rest: &[&str]| {
            let usual = ["--port", port, "--bind", "127.0.0.1"];
            RedisServer::with(&[&usual, rest].concat())
        };
        let servers = vec![
            server(&primary, &["--repl-diskless-sync-delay", "0"]),
            server(&replica, &["--replicaof", "127.0.0.1", &primary]),
        ];
        let mut connection = servers[1].connect();
        eventually_blocking(PATIENCE, "the replica follows", || {
            let info: String = ask(&mut connection, &["INFO", "replication"]);
            let follows = info.contains("master_link_status:up");
            if follows { Ok(()) } else { Err(info) }
        });
        let monitors = three_ports().map(|port| Sentinel::start(port, &primary));
        let sentinels = Self {
            monitors: monitors.into(),
            servers,
            _ports: ports,
        };
        sentinels.wait();
        sentinels
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self
            .monitors
            .iter()
            .map(|one| one.port.address().to_string())
            .collect();
        format!("redis-sentinel://{}/main", hosts.join(","))
    }

    /// Waits until each Sentinel knows the others and the replica: before that, the Sentinels would not fail
    /// over.
    fn wait(&self) {
        for sentinel in &self.monitors {
            let mut connection = sentinel.connect();
            let what = "the Sentinels know each other and the replica";
            eventually_blocking(PATIENCE, what, || {
                let known: Vec<redis::Value> =
                    ask(&mut connection, &["SENTINEL", "SENTINELS", "main"]);
                let replicas: Vec<redis::Value> =
                    ask(&mut connection, &["SENTINEL", "REPLICAS", "main"]);
                match (known.len(), replicas.len()) {
                    (2, 1) => Ok(()),
                    (known, replicas) => Err(format!("{known} Sentinels, {replicas} replicas")),
                }
            });
        }
    }
}

#[derive(Debug)]
struct Sentinel {
    child: Child,
    port: ReservedPort,
    _directory: TempDir,
}

impl Sentinel {
    fn start(port: ReservedPort, primary: &str) -> Self {
        let directory = TempDir::new();
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 1000\n",
            directory.path().display(),
            port = port.number(),
        );
        let child = Command::new("redis-server")
            // The Sentinel writes its own state into this file.
            .arg(directory.file("sentinel.conf", &text))
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server must be installed: Sentinel is not tested without it");
        Self {
            child,
            port,
            _directory: directory,
        }
    }

    fn connect(&self) -> Connection {
        let client = redis::Client::open(("127.0.0.1", self.port.number())).unwrap();
        eventually_blocking(PATIENCE, "the Sentinel answers", || client.get_connection())
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RedisServer {
    /// Connects. A server that was started again reads its file first, so this may take several attempts.
    pub(crate) fn connect(&self) -> Connection {
        let client = redis::Client::open(self.url()).unwrap();
        eventually_blocking(PATIENCE, "the server has read its file", || {
            let mut connection = client.get_connection()?;
            redis::cmd("PING").query::<String>(&mut connection)?;
            Ok::<_, redis::RedisError>(connection)
        })
    }
}

fn three_ports() -> [ReservedPort; 3] {
    [(); 3].map(|()| ReservedPort::new())
}

pub(crate) fn ask<T: FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query(connection).unwrap()
}
