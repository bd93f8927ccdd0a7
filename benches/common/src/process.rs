//! How a program begins and ends: its threads, its listener, its exit code.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};

/// Connections that wait to be accepted: a load generator opens thousands at once.
const BACKLOG: u32 = 4096;

/// A runtime with that many worker threads. One thread has the scheduler without work stealing, which costs less.
pub fn runtime(threads: usize) -> io::Result<Runtime> {
    if threads <= 1 {
        Builder::new_current_thread().enable_all().build()
    } else {
        Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
    }
}

/// Listens on an address. `shares_port`: several listeners of this process take connections of the same port.
pub fn listen(address: &str, shares_port: bool) -> Result<TcpListener, String> {
    let parsed: SocketAddr = address
        .parse()
        .map_err(|_| format!("{address:?} is no HOST:PORT"))?;
    let bound = || {
        let socket = if parsed.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(shares_port)?;
        socket.bind(parsed)?;
        socket.listen(BACKLOG)
    };
    bound().map_err(|error: io::Error| format!("cannot listen on {address}: {error}"))
}

/// The exit code of a program. An error is told on standard error.
#[expect(clippy::print_stderr, reason = "the error of a command")]
pub fn finish(ended: Result<(), String>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
