//! Every way to reach a server: the same calls, and no word lost where it is not reached.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::HeaderMap;
use raincheck::tls::client::{self, Files};
use raincheck::tls::kept::Kept;
use raincheck::upstream::Obstacle;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};

use super::*;
use crate::authority::Authority;
use crate::directory::TempDir;
use crate::relay::{Relay, over_socket, terms};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

fn identity(folder: &TempDir, (certificate, key): (String, String)) -> (PathBuf, PathBuf) {
    (
        folder.file("certificate", &certificate),
        folder.file("key", &key),
    )
}

/// Whom and as whom a client is to trust and speak.
fn tls_of(
    folder: &TempDir,
    servers: &Authority,
    clients: Option<&Authority>,
) -> Arc<Kept<ClientConfig>> {
    let files = Files {
        roots: Some(folder.file("roots", &servers.roots())),
        identity: clients.map(|clients| identity(folder, clients.issue())),
        http2: false,
    };
    client::client(files).unwrap()
}

fn over_tls(url: String, tls: &Arc<Kept<ClientConfig>>) -> Upstream {
    let settings = Settings {
        tls: Some(Arc::clone(tls)),
        ..settings(url)
    };
    Upstream::new(&settings, TaskTracker::new()).unwrap()
}

fn over_unix(socket: &Path) -> Upstream {
    let settings = Settings {
        socket: Some(socket.into()),
        ..settings("http://localhost/mcp")
    };
    Upstream::new(&settings, TaskTracker::new()).unwrap()
}

async fn server() -> (Server, std::net::SocketAddr) {
    let server = Server::start(Reply::result(OK)).await;
    let address = server.authority().parse().unwrap();
    (server, address)
}

#[tokio::test]
async fn a_call_is_the_same_over_every_way() {
    let authority = Authority::new();
    for era in BOTH {
        for way in ["tcp", "TLS 1.2", "TLS 1.3", "unix"] {
            let (server, address) = server().await;
            let folder = TempDir::new();
            let version = VERSIONS[usize::from(way == "TLS 1.3")];
            let relay =
                Relay::over_tls(terms(authority.issue(), Some(&authority), version), address);
            let relay = relay.await;
            let socket = folder.path().join("s");
            let _relayed = over_socket(&socket, address);
            let upstream = match way {
                "tcp" => upstream(&server),
                "unix" => over_unix(&socket),
                _ => {
                    let tls = tls_of(&folder, &authority, Some(&authority));
                    over_tls(relay.url("localhost"), &tls)
                }
            };
            for _ in 0..3 {
                let outcome = outcome(&upstream, era).await;
                assert_eq!(outcome, format!("result {OK}"), "{way} {era:?}");
            }
            assert_eq!(server.calls(), 3, "{way}");
            assert!(upstream.forwards_credentials(), "{way}");
            let seen = server.last("tools/call");
            assert_eq!(seen.path, "/mcp", "{way}");
            if way == "unix" {
                assert_eq!(seen.header("host"), "localhost");
            }
            // A legacy server may have no stream to be listened to.
            let obstacle = upstream.obstacle();
            assert!(
                matches!(obstacle, None | Some(Obstacle::Status { .. })),
                "{way}"
            );
        }
    }
}

/// Whatever keeps TLS from coming about, nothing was sent and that is what is said.
#[tokio::test]
async fn without_tls_nothing_was_sent() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut faults = Vec::new();
    for version in VERSIONS {
        let (authority, other) = (&authority, &other);
        let good = || terms(authority.issue(), None, version);
        let asking = || terms(authority.issue(), Some(authority), version);
        for (fault, host, terms, trusted, identity) in [
            ("another host", "127.0.0.1", good(), authority, None),
            ("untrusted", "localhost", good(), other, None),
            (
                "expired",
                "localhost",
                terms(authority.issue_until(2020), None, version),
                authority,
                None,
            ),
            (
                "no client certificate",
                "localhost",
                asking(),
                authority,
                None,
            ),
            (
                "a client certificate of others",
                "localhost",
                asking(),
                authority,
                Some(other),
            ),
        ] {
            faults.push(async move {
                let (server, address) = server().await;
                let folder = TempDir::new();
                let relay = Relay::over_tls(terms, address).await;
                let tls = tls_of(&folder, trusted, identity);
                let upstream = over_tls(relay.url(host), &tls);
                for era in BOTH {
                    let outcome = outcome(&upstream, era).await;
                    assert_eq!(
                        outcome, "upstream_unreachable none",
                        "{fault} {version:?} {era:?}"
                    );
                    let obstacle = upstream.obstacle();
                    let is_told = matches!(obstacle, Some(Obstacle::NoConnection(_)));
                    assert!(is_told, "{fault} {version:?} {era:?}: {obstacle:?}");
                }
                assert_eq!(server.connections(), 0, "{fault} {version:?}");
            });
        }
    }
    futures_util::future::join_all(faults).await;
}

#[tokio::test]
async fn a_socket_that_is_none_is_named() {
    let folder = TempDir::new();
    let left_over = folder.path().join("left");
    drop(std::os::unix::net::UnixListener::bind(&left_over).unwrap());
    for (file, expected) in [
        (folder.path().join("none"), "there is no "),
        (folder.file("text", "x"), " is not a socket"),
        (left_over, "nobody listens on "),
    ] {
        let upstream = over_unix(&file);
        let outcome = outcome(&upstream, Era::Modern).await;
        assert_eq!(outcome, "upstream_unreachable none");
        let obstacle = upstream.obstacle();
        let Some(Obstacle::NoConnection(why)) = &obstacle else {
            panic!("{obstacle:?}");
        };
        assert!(why.contains(expected), "{why}");
    }
}

/// Certificates end; what replaces them is found without a signal and without a failed call.
#[tokio::test]
async fn a_refused_certificate_is_read_anew() {
    for version in VERSIONS {
        let (old, new) = (Authority::new(), Authority::new());
        let (server, address) = server().await;
        let folder = TempDir::new();
        let relay = Relay::over_tls(terms(old.issue(), Some(&old), version), address).await;
        let tls = tls_of(&folder, &old, Some(&old));
        let upstream = over_tls(relay.url("localhost"), &tls);
        // The server's authority stays, the clients' is another one.
        relay.change(terms(old.issue(), Some(&new), version));
        identity(&folder, new.issue());
        let outcome = outcome(&upstream, Era::Modern).await;
        assert_eq!(outcome, format!("result {OK}"), "{version:?}");
        assert_eq!(server.calls(), 1, "{version:?}");
    }
}

#[tokio::test]
async fn broken_files_leave_the_old_ones() {
    let authority = Authority::new();
    let (server, address) = server().await;
    let folder = TempDir::new();
    let relay = Relay::over_tls(terms(authority.issue(), Some(&authority), &TLS13), address).await;
    let tls = tls_of(&folder, &authority, Some(&authority));
    let upstream = over_tls(relay.url("localhost"), &tls);
    // The key of before does not fit.
    let (certificate, _) = authority.issue();
    folder.file("certificate", &certificate);
    let refusal = tls.reload().await.unwrap_err().to_string();
    assert!(refusal.contains("is not the key of"), "{refusal}");
    folder.file("roots", "none");
    let refusal = tls.reload().await.unwrap_err().to_string();
    assert!(refusal.contains("holds no certificate"), "{refusal}");
    assert_eq!(
        outcome(&upstream, Era::Modern).await,
        format!("result {OK}")
    );
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn headers_of_ours_replace_those_of_clients() {
    for era in BOTH {
        let (server, _) = server().await;
        let headers = HeaderMap::from_iter(
            [("authorization", "Bearer ours"), ("x-api-key", "ours, too")]
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))),
        );
        let settings = Settings {
            headers,
            ..settings(server.url())
        };
        let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
        assert!(!upstream.forwards_credentials());
        let outgoing = UpstreamRequest {
            credentials: Some(HeaderValue::from_static("Bearer theirs").into()),
            ..call("t")
        };
        let outcome = outcome_of(upstream.begin(era, outgoing)).await;
        assert_eq!(outcome, format!("result {OK}"));
        let request = Request::post("/mcp")
            .header("x-api-key", "theirs")
            .header("X-Api-Key", "twice")
            .header("authorization", "Bearer theirs")
            .header("content-type", "application/json");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let body = RequestBody::empty();
        upstream.pass(Box::new(parts), body).await.unwrap();
        let mut methods = vec!["tools/call", "answer"];
        if era == Era::Legacy {
            methods.push("initialize");
        }
        for method in methods {
            let seen = server.last(method);
            for (name, expected) in [("authorization", "Bearer ours"), ("x-api-key", "ours, too")] {
                let values: Vec<_> = seen.headers.get_all(name).iter().collect();
                assert_eq!(values, [expected], "{method}");
            }
        }
    }
}
