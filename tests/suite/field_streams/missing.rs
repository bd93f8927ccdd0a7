//! Legacy servers without a GET stream, or whose stream ends at once: a subscription begins no session anew.

use serde_json::json;

use super::Scripted;
use crate::support::client::Client;
use crate::support::{Config, PATIENCE, eventually};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

#[tokio::test]
async fn a_server_without_a_stream_tells_no_changes() {
    for get in [
        "HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 404 No\r\ncontent-type: text/html\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno",
        "HTTP/1.1 400 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 501 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
    ] {
        let server = Scripted::start(Vec::new(), get).await;
        let proxy = Config::never().start(&server.url()).await;
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:b"]});
        let mut stream = Client::of(proxy.address()).listening(filter).stream().await;
        let told = stream.next_of(ACKNOWLEDGED).await;
        assert_eq!(told["params"]["notifications"], json!({}), "{get}");
        let is_closed = async || server.seen("DELETE") == 1;
        eventually(PATIENCE, "the session is ended", is_closed).await;
        assert_eq!(
            (server.seen("initialize"), server.seen("GET")),
            (1, 1),
            "{get}"
        );
    }
}

#[tokio::test]
async fn a_stream_that_ends_at_once_is_requested_again_on_its_session() {
    let ended =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hi\n\n";
    let server = Scripted::start(Vec::new(), ended).await;
    let proxy = Config::never().start(&server.url()).await;
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:b"]});
    let mut stream = Client::of(proxy.address())
        .listening(filter.clone())
        .stream()
        .await;
    let told = stream.next_of(ACKNOWLEDGED).await;
    assert_eq!(told["params"]["notifications"], filter);
    eventually(PATIENCE, "it is requested again", async || {
        server.seen("GET") >= 3
    })
    .await;
    let counts = ["initialize", "resources/subscribe", "DELETE"].map(|name| server.seen(name));
    assert_eq!(counts, [1, 1, 0]);
}
