//! A server that hears slowly: what is sent waits on the way to it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::*;
use crate::scripted::Listening;

/// Passes bytes on to the server while the way is open, and those back always.
async fn way_to(target: SocketAddr, is_open: watch::Receiver<bool>) -> Listening {
    let ways = Listening::start(move |client| {
        let mut is_open = is_open.clone();
        async move {
            let (mut from, mut back) = client.into_split();
            let (mut said, mut to) = TcpStream::connect(target).await.unwrap().into_split();
            let there = async move {
                let mut piece = [0; 4096];
                while let Ok(read @ 1..) = from.read(&mut piece).await {
                    is_open.wait_for(|is_open| *is_open).await.unwrap();
                    to.write_all(&piece[..read]).await.unwrap();
                }
            };
            let _ = tokio::join!(there, copy(&mut said, &mut back));
        }
    });
    ways.await
}

/// Otherwise the server would run the call to its end, and no client would hear of it.
#[tokio::test]
async fn a_cancel_reaches_a_server_that_hears_slowly() {
    let server = Server::start(Reply::sse_open(": nothing\n\n")).await;
    let (open, is_open) = watch::channel(true);
    let way = way_to(server.authority().parse().unwrap(), is_open).await;
    let up = Upstream::new(&settings(way.url()), TaskTracker::new()).unwrap();
    let mut exchange = up.begin(Era::Legacy, call("t"));
    tokio::select! {
        _ = exchange.events.next() => panic!("it says nothing"),
        () = server.until(|s| s.calls() == 1) => {}
    }
    open.send_replace(false);
    let cancel = exchange.control.cancel();
    tokio::pin!(cancel);
    let told = timeout(Duration::from_millis(2500), &mut cancel).await;
    assert!(told.is_err(), "it cannot have heard");
    open.send_replace(true);
    tokio::select! {
        () = cancel => {}
        _ = exchange.events.next() => panic!("it says nothing"),
    }
    assert!(server.count("notifications/cancelled") >= 1);
}
