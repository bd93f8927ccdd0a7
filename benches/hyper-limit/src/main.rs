//! hyper-limit: the least that a Rust proxy can do for the same job. No product: no callers, limits, owners or recovery.
//!
//! ```text
//! hyper-limit --listen 127.0.0.1:23010 --upstream http://127.0.0.1:23000
//!             [--inspect 1]     parse the JSON-RPC envelope of each request, else bodies are streamed untouched
//!             [--redis URL]     also answer tasks: kept in Redis before the client hears of them
//!             [--h2 1]          HTTP/2 without TLS to the upstream
//!             [--threads 2]     worker threads of one runtime
//!             [--tpc N]         in place of that, N runtimes of one thread: each with its listener and connections
//! ```

mod answer;
mod forward;
mod http;
mod message;
mod options;
mod tasks;
mod time;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use common::{Arguments, finish, listen, runtime};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use crate::http::Proxy;
use crate::options::{Options, Threads};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = Arguments::parse(std::env::args().skip(1)).and_then(Options::of);
    finish(options.and_then(|options| run(&options)))
}

fn run(options: &Options) -> Result<(), String> {
    match options.threads {
        Threads::Shared(threads) => serve_on(threads, options),
        Threads::PerCore(cores) => thread::scope(|scope| {
            let serving = (0..cores).map(|_| scope.spawn(|| serve_on(1, options)));
            // All are started before the first is waited for.
            let serving: Vec<_> = serving.collect();
            let ended = serving.into_iter().map(|serving| match serving.join() {
                Ok(ended) => ended,
                Err(_) => Err("a thread panicked".to_owned()),
            });
            ended.collect()
        }),
    }
}

fn serve_on(threads: usize, options: &Options) -> Result<(), String> {
    let runtime = runtime(threads).map_err(|error| error.to_string())?;
    runtime.block_on(serve(options))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a connection ends with the process"
)]
async fn serve(options: &Options) -> Result<(), String> {
    let proxy = Arc::new(Proxy::open(options).await?);
    let shares_port = matches!(options.threads, Threads::PerCore(_));
    let listener = listen(&options.listen, shares_port)?;
    loop {
        // A connection that is gone before it was accepted is no fault of the listener.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, Arc::clone(&proxy)));
        }
    }
}

async fn connection(stream: TcpStream, proxy: Arc<Proxy>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| http::handle(Arc::clone(&proxy), request));
    // How a connection ends is the client's business.
    let _ = Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
