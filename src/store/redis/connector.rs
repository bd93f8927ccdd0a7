//! Connects to a server: its URL, our certificates, and sockets that notice a dead peer.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo,
    RedisResult, TlsCertificates,
};

use super::error::RedisOpenError;
use super::map::RedisServer;
use crate::base::lock::Mutex;
use crate::platform::socket::keepalive;

/// Certificates for the connection to Redis, in PEM.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Trusted instead of the machine's roots.
    pub roots: Option<Vec<u8>>,
    /// The certificate chain and key that we present.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisTls")
    }
}

/// Makes connections to the servers of one store.
pub(super) struct RedisConnector {
    tls: RedisTls,
}

impl RedisConnector {
    pub(super) fn new(tls: RedisTls) -> Self {
        // Redis-rs uses the process's default provider. An earlier call has installed the same one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self { tls }
    }

    /// Does not connect.
    pub(super) fn server(&self, url: &str, generation: u64) -> Result<RedisServer, RedisOpenError> {
        // The library's own text could quote the URL, and with it the password.
        let info = url
            .into_connection_info()
            .map_err(|_| RedisOpenError::Url)?;
        // An idle connection to a peer that vanished ends after 30 s: 15 s of silence, and three attempts.
        let keepalive = keepalive(Duration::from_secs(15), Duration::from_secs(5), 3);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        // Without this each connection starts with two more commands, which tell the server our library's name.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_tcp_settings(tcp).set_redis_settings(settings);
        let name = info.addr().to_string();
        let client = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            Client::build_with_tls(info, self.certificates())
                .map_err(RedisOpenError::Certificates)?
        } else {
            Client::open(info).map_err(|_| RedisOpenError::Url)?
        };
        Ok(RedisServer {
            name,
            generation,
            client,
            kept: Mutex::default(),
        })
    }

    /// A connection for a few commands in a row.
    pub(super) async fn connect(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(CONNECT_TIMEOUT));
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    fn certificates(&self) -> TlsCertificates {
        let identity = self.tls.identity.clone();
        TlsCertificates {
            client_tls: identity.map(|(client_cert, client_key)| ClientTlsConfig {
                client_cert,
                client_key,
            }),
            root_cert: self.tls.roots.clone(),
        }
    }
}

/// The timeout of a new connection, and of each command at open.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection whose data stays unacknowledged for this long counts as dead.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
