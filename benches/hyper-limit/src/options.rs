//! What the user wants.

use common::Arguments;

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) listen: String,
    /// The upstream's scheme, host and port.
    pub(crate) upstream: String,
    /// Parse the envelope of each request.
    pub(crate) inspects: bool,
    /// Where tasks are kept, if tasks are answered.
    pub(crate) redis: Option<String>,
    /// Speak HTTP/2 to the upstream.
    pub(crate) uses_http2: bool,
    pub(crate) threads: Threads,
}

/// How the work is spread.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Threads {
    /// One runtime, whose workers steal from each other.
    Shared(usize),
    /// As many runtimes of one thread. The kernel spreads connections over their listeners.
    PerCore(usize),
}

impl Options {
    pub(crate) fn of(mut arguments: Arguments) -> Result<Self, String> {
        let mut text =
            |name: &str, default: &str| arguments.text(name).unwrap_or_else(|| default.to_owned());
        let listen = text("listen", "127.0.0.1:23010");
        let upstream = text("upstream", "http://127.0.0.1:23000");
        let redis = arguments.text("redis");
        let threads = arguments.number("threads", 2)?;
        let options = Self {
            listen,
            upstream,
            inspects: arguments.is_on("inspect") || redis.is_some(),
            redis,
            uses_http2: arguments.is_on("h2"),
            threads: match arguments.number("tpc", 0)? {
                0 => Threads::Shared(threads),
                cores => Threads::PerCore(cores),
            },
        };
        arguments.finish()?;
        Ok(options)
    }
}
