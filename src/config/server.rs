//! The wrapped server: an address, a socket, or a program to run.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use hyper::Uri;

use super::secret::Secret;
use super::unix::Socket;

/// Where the wrapped server is. Prints as its URL, or as the name of its program only, because arguments may
/// hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrapped {
    /// `http` or `https`, with a host, without credentials.
    Url(Uri),
    Unix(Socket),
    Command(WrappedCommand),
}

/// A program that speaks MCP over its standard input and output. No shell is asked to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedCommand {
    pub program: String,
    pub arguments: Vec<Secret>,
    /// The whole environment of the program.
    pub environment: Vec<(String, Secret)>,
    /// `None`: raincheck's own directory.
    pub directory: Option<PathBuf>,
}

impl Wrapped {
    /// A text that identifies this server. For a command it is a hash, because arguments may hold secrets and
    /// the identity is stored.
    pub fn identity(&self) -> String {
        match self {
            Self::Url(url) => url.to_string(),
            Self::Unix(socket) => socket.to_string(),
            Self::Command(command) => {
                let mut text = command.program.clone();
                for argument in &command.arguments {
                    // No word holds a zero byte, so two commands never give one text.
                    text.push('\0');
                    text.push_str(argument.expose());
                }
                let hash = digest(&SHA256, text.as_bytes());
                let hash = hash.as_ref().first_chunk().copied().unwrap_or_default();
                format!("stdio:{:016x}", u64::from_be_bytes(hash))
            }
        }
    }

    /// The text by which a namespace in Redis remembers its service. It leaves out the parts that change when
    /// the same service gets a new version or a new key.
    pub fn service(&self) -> String {
        match self {
            Self::Url(url) => without_query(url),
            Self::Unix(socket) => socket.to_string(),
            Self::Command(command) => {
                let name = Path::new(&command.program).file_name();
                format!("stdio:{}", name.unwrap_or_default().to_string_lossy())
            }
        }
    }

    /// Returns `true` if the server is behind loopback or a socket. Then the caller's `Authorization` may go to the
    /// server, because proxy and server are one resource. A program reads no headers.
    pub fn is_local(&self) -> bool {
        let url = match self {
            Self::Url(url) => url,
            Self::Unix(_) => return true,
            Self::Command(_) => return false,
        };
        let host = url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A query often carries a key.
            Self::Url(url) if url.query().is_some() => write!(f, "{}?...", without_query(url)),
            Self::Url(url) => url.fmt(f),
            Self::Unix(socket) => socket.fmt(f),
            Self::Command(command) => command.program.fmt(f),
        }
    }
}

fn without_query(url: &Uri) -> String {
    let whole = url.to_string();
    let address = whole.split_once('?').map(|(address, _)| address.to_owned());
    address.unwrap_or(whole)
}
