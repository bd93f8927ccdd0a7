//! The faults that take a server, or a way to it, of their own.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use socket2::{Domain, Socket, Type};

use super::{Era, Stage, Trap, Trial, reported};
use crate::Report;
use crate::book::Book;
use crate::faulty::Faulty;
use crate::faulty::table::{BUSY, COMPLETED, NOT_RUN, Want, failed};
use crate::ports::ReservedPort;
use crate::rig::wire::Wire;

/// Replicas at once.
const AT_ONCE: usize = 3;

/// A connection that has been silent for so long is not used again.
const SILENT: Duration = Duration::from_secs(5);

/// The end of a connection has come to the other side's notice.
const NOTICED: Duration = Duration::from_millis(200);

/// Two of three tries, a second or a little more apart, are over, and the third is not.
const TWO_TRIES: Duration = Duration::from_millis(1500);

const UNREACHABLE: Want = failed("upstream_unreachable", "none").sent(0);

pub(super) async fn apart(trap: &Trap, report: &mut Report) {
    let mut trials: Vec<BoxFuture<'_, Report>> = Vec::new();
    for era in Era::BOTH {
        trials.push(Box::pin(refused(era)));
        trials.push(Box::pin(nameless(era)));
        trials.push(Box::pin(without_tls(era, trap.address)));
        trials.push(Box::pin(never_accepted(era)));
        trials.push(Box::pin(half_open(era, trap.address)));
        trials.push(Box::pin(closing(era, trap.address)));
    }
    trials.push(Box::pin(shut(trap.address)));
    trials.push(Box::pin(busy(trap.address)));
    let found: Vec<Report> = stream::iter(trials)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for part in found {
        report.join(part);
    }
}

async fn refused(era: Era) -> Report {
    let port = ReservedPort::new();
    let url = format!("http://{}/mcp", port.address());
    unreachable("refused", era, &url).await
}

async fn nameless(era: Era) -> Report {
    unreachable("nameless", era, "http://no-such-name.invalid/mcp").await
}

/// A server that does not know what TLS is.
async fn without_tls(era: Era, trap: SocketAddr) -> Report {
    let server = Faulty::start(Book::default(), trap).await;
    let url = server.url().replace("http:", "https:");
    unreachable("without-tls", era, &url).await
}

/// A server that is too busy to take a connection.
async fn never_accepted(era: Era) -> Report {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("a port");
    socket.listen(0).expect("a socket that listens");
    let address = socket.local_addr().expect("the port that was bound");
    let address = address.as_socket().expect("an address");
    // One waits to be accepted, and there is room for no other.
    let _waits = tokio::net::TcpStream::connect(address).await;
    unreachable("never-accepted", era, &format!("http://{address}/mcp")).await
}

async fn unreachable(fault: &'static str, era: Era, url: &str) -> Report {
    let book = Book::default();
    let mut stage = Stage::start(era, url, book).await;
    let trial = trial(format!("{fault}.{}", era.word()), fault, UNREACHABLE);
    let found = ends(&stage, &trial).await;
    let mut report = reported(&trial, found);
    let port = url
        .trim_end_matches("/mcp")
        .rsplit(':')
        .next()
        .unwrap_or_default();
    stage.inspect(&mut report, port);
    report
}

async fn ends(stage: &Stage, trial: &Trial) -> Result<(), String> {
    let began = std::time::Instant::now();
    let arguments = serde_json::json!({"fault": trial.fault, "token": trial.token});
    let heard = stage.client().call(trial.tool, arguments).await;
    let id = heard
        .task()
        .ok_or_else(|| format!("not announced: {heard:?}"))?;
    let deadline = began + trial.max_duration() + super::SLACK;
    stage.judge(trial, &stage.told(&id, deadline).await).await
}

/// Every open connection goes silent, without being closed.
async fn half_open(era: Era, trap: SocketAddr) -> Report {
    let book = Book::default();
    let server = Faulty::start(book.clone(), trap).await;
    let wire = Wire::to(server.address()).await;
    let mut stage = Stage::start(era, &wire.url(), book.clone()).await;
    let trial = Trial {
        fault: "hang",
        tool: "brief",
        token: format!("half-open.{}", era.word()),
        want: failed("deadline", "unknown"),
    };
    let breaks = async {
        book.until(&trial.token, Duration::from_secs(10), |entry| {
            entry.runs > 0
        })
        .await;
        wire.freeze();
    };
    let (found, ()) = tokio::join!(ends(&stage, &trial), breaks);
    tokio::time::sleep(SILENT).await;
    let found = match found {
        Ok(()) => stage.serves(&trial.token).await,
        Err(why) => Err(why),
    };
    let mut report = reported(&trial, found);
    let port = server.address().port().to_string();
    stage.inspect(&mut report, &port);
    report
}

/// A server that closes its connection after each answer and does not say so.
async fn closing(era: Era, trap: SocketAddr) -> Report {
    let book = Book::default();
    let server = Faulty::start(book.clone(), trap).await;
    let mut stage = Stage::start(era, &server.url(), book).await;
    let mut found = Ok(());
    for n in 0..3 {
        let token = format!("closing.{}.{n}", era.word());
        let trial = trial(token, "closed-after-the-answer", COMPLETED);
        if found.is_ok() {
            found = ends(&stage, &trial).await;
        }
        tokio::time::sleep(NOTICED).await;
        if found.is_ok() {
            found = stage.serves(&trial.token).await;
        }
    }
    let trial = trial(
        format!("closing.{}", era.word()),
        "closed-after-the-answer",
        COMPLETED,
    );
    let mut report = reported(&trial, found);
    stage.inspect(&mut report, &server.address().port().to_string());
    report
}

/// A server that forgets its sessions and opens no other.
async fn shut(trap: SocketAddr) -> Report {
    let book = Book::default();
    let server = Faulty::start(book.clone(), trap).await;
    let mut stage = Stage::start(Era::Legacy, &server.url(), book).await;
    let mut found = stage.serves("before-shut").await;
    server.shut();
    let trial = trial("shut".to_owned(), "session-lost-again", NOT_RUN);
    if found.is_ok() {
        found = ends(&stage, &trial).await;
    }
    let mut report = reported(&trial, found);
    stage.inspect(&mut report, &server.address().port().to_string());
    report
}

/// A server that is too busy for a session, for a while or for good.
async fn busy(trap: SocketAddr) -> Report {
    let book = Book::default();
    let server = Faulty::start(book.clone(), trap).await;
    let mut stage = Stage::start(Era::Legacy, &server.url(), book).await;
    server.be_busy(true);
    let for_good = NOT_RUN.sent(0).says(BUSY);
    let for_good = trial("busy-for-good".to_owned(), "none", for_good);
    let mut found = ends(&stage, &for_good).await;
    let for_a_while = trial("busy".to_owned(), "none", COMPLETED);
    let mends = async {
        tokio::time::sleep(TWO_TRIES).await;
        server.be_busy(false);
    };
    if found.is_ok() {
        (found, ()) = tokio::join!(stage.trial(&for_a_while), mends);
    }
    let mut report = reported(&for_a_while, found);
    stage.inspect(&mut report, &server.address().port().to_string());
    report
}

fn trial(token: String, fault: &'static str, want: Want) -> Trial {
    Trial {
        fault,
        tool: "work",
        token,
        want,
    }
}
