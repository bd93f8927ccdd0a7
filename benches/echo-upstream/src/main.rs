//! echo-upstream: a small, fast MCP server, behind every proxy that is measured.
//!
//! ```text
//! echo-upstream --listen 127.0.0.1:23000 [--threads 1]
//! echo-upstream --stdio
//!
//! POST /mcp          revision 2026-07-28: stateless, JSON answers, an event stream for `stream`
//! POST /mcp-sse      the same, but every call is answered with an event stream
//! POST /legacy       revision 2025-11-25: sessions, event streams
//! POST /legacy-json  the same with JSON answers
//! POST /v1/traces    takes spans and forgets them, as a collector of OpenTelemetry would be sent them
//! GET  /stats        {"requests":N,"active":N,"peak":N}: `active` are the calls of `slow` and `stream`
//! ```
//!
//! HTTP/1.1 and HTTP/2 without TLS. The tools: `fast {nonce}`, `slow {ms, nonce}`, `stream {n, interval_ms, nonce, pad}`,
//! `big {bytes, nonce}`. Every result carries the nonce, so a client can check that it got its own answer.

mod answer;
mod http;
mod legacy;
mod request;
mod stats;
mod stdio;
mod tools;

use std::process::ExitCode;

use common::{Arguments, finish, listen, runtime};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};

/// Calls on one HTTP/2 connection: a proxy may put all its open calls on one.
const STREAMS_MAX: u32 = 100_000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "--stdio").is_some() {
        stdio::serve();
        return ExitCode::SUCCESS;
    }
    finish(Arguments::parse(words).and_then(run))
}

fn run(mut arguments: Arguments) -> Result<(), String> {
    let address = arguments
        .text("listen")
        .unwrap_or_else(|| "127.0.0.1:23000".to_owned());
    let threads = arguments.number("threads", 1)?;
    arguments.finish()?;
    let runtime = runtime(threads).map_err(|error| error.to_string())?;
    runtime.block_on(async { accept(listen(&address, false)?).await })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a connection ends with the process"
)]
async fn accept(listener: TcpListener) -> Result<(), String> {
    loop {
        // A connection that is gone before it was accepted is no fault of the listener.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    }
}

async fn serve(stream: TcpStream) {
    // Without this an event would wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let mut server = Builder::new(TokioExecutor::new());
    server.http2().max_concurrent_streams(STREAMS_MAX);
    // How a connection ends is the client's business.
    let _ = server
        .serve_connection(TokioIo::new(stream), service_fn(http::handle))
        .await;
}
