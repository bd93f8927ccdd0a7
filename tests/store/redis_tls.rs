//! TLS to Redis: whom we trust, and who we are.

use raincheck::store::Store as _;
use raincheck::store::redis::{Namespace, Redis, RedisOpenError, RedisOptions};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authority::Authority;
use crate::rig::{create_until, done, hour};
use crate::tls_server::TlsServer;

#[tokio::test]
async fn tls_works_for_whom_we_trust_and_only_for_them() {
    let server = TlsServer::start("no");
    let mut options = options(&server.url);
    let refused = open(&options).await.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::Unreachable { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("store.tls.roots"));
    options.tls.roots = Some(Authority::new().roots().into());
    let refused = open(&options).await.unwrap_err();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("certificate") && !why.contains('\n'), "{why}");
    options.tls.roots = Some(server.authority.roots().into());
    let store = open(&options).await.unwrap();
    done(store.commit(&create_until(hour())).await.unwrap());
    options.tls.roots = Some(b"-----BEGIN CERTIFICATE-----\n".to_vec());
    assert!(open(&options).await.is_err());
}

#[tokio::test]
async fn a_server_that_asks_who_we_are_is_shown_our_certificate() {
    let server = TlsServer::start("yes");
    let mut options = options(&server.url);
    options.tls.roots = Some(server.authority.roots().into());
    let refused = open(&options).await.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::Unreachable { .. }),
        "{refused:?}"
    );
    let stranger = Authority::new().issue();
    options.tls.identity = Some((stranger.0.into(), stranger.1.into()));
    assert!(open(&options).await.is_err());
    let ours = server.authority.issue();
    options.tls.identity = Some((ours.0.into(), ours.1.into()));
    let store = open(&options).await.unwrap();
    done(store.commit(&create_until(hour())).await.unwrap());
}

fn options(url: &str) -> RedisOptions {
    RedisOptions::new(url, Namespace::parse("ns").unwrap())
}

async fn open(options: &RedisOptions) -> Result<Redis, RedisOpenError> {
    Redis::open(options, &TaskTracker::new(), &CancellationToken::new()).await
}
