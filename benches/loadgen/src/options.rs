//! What to measure.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use common::Arguments;
use serde::Serialize;

pub(crate) const USAGE: &str = "loadgen --url http://HOST:PORT/PATH --mode MODE --concurrency N --seconds S [OPTION..]

MODE
  passthrough     tools/call `fast`; the client does not know of tasks
  declared        the same call of a client that knows of tasks, and still expects the result itself
  list            tools/list
  sse             tools/call `stream`; the latency is that of each event, from the server's clock to here
  task-create     tools/call of a client that knows of tasks; expects a task
  task-get        creates --preload tasks, waits until they are completed, then asks for them
  task-lifecycle  creates a task and polls until it is completed; the latency is that of the whole
  open-calls      opens --open calls of `slow`, one connection each, and samples the memory of --pid
  open-tasks      creates --open tasks of `slow`, and samples the memory of --pid

OPTIONS (default)
  --wire modern|legacy (modern)   the revision 2026-07-28 or 2025-11-25
  --tool NAME, --args JSON        another tool, more arguments: '{\"k\":1}'
  --header 'NAME: VALUE'          may be repeated
  --callers N (0)                 each request has one of N tokens, in turn; 0: none has. Not for modes that ask for tasks
  --warmup S (1), --timeout S (30), --threads N (1), --label TEXT
  --rate R                        an open loop: R calls a second over all connections
  --pid PID[,PID..]               processes, with their children, whose CPU and memory are measured
  --events N (100), --interval-ms N (10), --pad BYTES (0)   of mode sse
  --preload N (1000)              of mode task-get
  --poll-ms N (0)                 of mode task-lifecycle
  --open N (1000), --slow-ms N (600000), --hold S (2), --sources N (1)   of modes open-*; clients at 127.0.0.1..N
  --polls N (0)                   of mode open-tasks: polls of the open tasks, over --concurrency connections, whose latency is
                                  measured; 0: a sample of 200
  --no-nonce 1                    do not check the text of results";

/// What a measurement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each connection calls again when it has its answer.
    Repeat(Repeated),
    /// Calls are opened and stay open.
    Hold(Held),
}

/// What is called again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeated {
    Passthrough,
    Declared,
    List,
    Sse,
    TaskCreate,
    TaskGet,
    TaskLifecycle,
}

/// What is held open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Calls,
    Tasks,
}

impl Mode {
    const ALL: [(&str, Self); 9] = [
        ("passthrough", Self::Repeat(Repeated::Passthrough)),
        ("declared", Self::Repeat(Repeated::Declared)),
        ("list", Self::Repeat(Repeated::List)),
        ("sse", Self::Repeat(Repeated::Sse)),
        ("task-create", Self::Repeat(Repeated::TaskCreate)),
        ("task-get", Self::Repeat(Repeated::TaskGet)),
        ("task-lifecycle", Self::Repeat(Repeated::TaskLifecycle)),
        ("open-calls", Self::Hold(Held::Calls)),
        ("open-tasks", Self::Hold(Held::Tasks)),
    ];

    /// The word for it on the command line.
    pub(crate) fn word(self) -> &'static str {
        let found = Self::ALL.into_iter().find(|(_, mode)| *mode == self);
        found.map_or("", |(word, _)| word)
    }

    fn tool(self) -> &'static str {
        match self {
            Self::Repeat(Repeated::Sse) => "stream",
            Self::Repeat(_) => "fast",
            Self::Hold(_) => "slow",
        }
    }

    /// How long `slow` takes, if the user does not say.
    fn slow_ms(self) -> u64 {
        match self {
            Self::Repeat(_) => 0,
            Self::Hold(_) => 600_000,
        }
    }
}

/// The revision that the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wire {
    Modern,
    Legacy,
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) url: String,
    /// Host and port.
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) mode: Mode,
    pub(crate) wire: Wire,
    pub(crate) tool: String,
    /// Members of the arguments beside those of the mode, as JSON without the braces.
    pub(crate) extra_arguments: String,
    /// Header lines beside those of the protocol, each with its line end.
    pub(crate) headers: String,
    /// How many different tokens requests have. 0: they have none.
    pub(crate) callers: u64,
    pub(crate) concurrency: usize,
    pub(crate) seconds: Duration,
    pub(crate) warmup: Duration,
    /// Calls a second. 0: each connection calls again as soon as it has its answer.
    pub(crate) rate: f64,
    pub(crate) slow_ms: u64,
    pub(crate) poll_ms: u64,
    pub(crate) preload: usize,
    pub(crate) open: usize,
    pub(crate) hold: Duration,
    pub(crate) polls: usize,
    pub(crate) sources: u8,
    pub(crate) events: u64,
    pub(crate) interval_ms: u64,
    pub(crate) pad: usize,
    pub(crate) timeout: Duration,
    pub(crate) checks_nonce: bool,
    pub(crate) pids: Vec<u32>,
    pub(crate) threads: usize,
    pub(crate) label: String,
}

impl Options {
    pub(crate) fn of(mut given: Arguments) -> Result<Self, String> {
        let url = given.text("url").ok_or("--url is missing")?;
        let (host, path) = split(&url)?;
        let mode = match given.text("mode") {
            Some(word) => mode(&word)?,
            None => Mode::Repeat(Repeated::Passthrough),
        };
        let options = Self {
            url,
            host,
            path,
            mode,
            wire: wire(given.text("wire").as_deref())?,
            tool: given.text("tool").unwrap_or_else(|| mode.tool().to_owned()),
            extra_arguments: members(&given.text("args").unwrap_or_default())?,
            headers: given
                .all("header")
                .into_iter()
                .map(|line| line + "\r\n")
                .collect(),
            callers: given.number("callers", 0)?,
            concurrency: at_least_one(&mut given, "concurrency", 32)?,
            seconds: seconds(&mut given, "seconds", 5.0)?,
            warmup: seconds(&mut given, "warmup", 1.0)?,
            rate: given.number("rate", 0.0)?,
            slow_ms: given.number("slow-ms", mode.slow_ms())?,
            poll_ms: given.number("poll-ms", 0)?,
            preload: at_least_one(&mut given, "preload", 1000)?,
            open: at_least_one(&mut given, "open", 1000)?,
            hold: seconds(&mut given, "hold", 2.0)?,
            polls: given.number("polls", 0)?,
            sources: at_least_one(&mut given, "sources", 1)?,
            events: given.number("events", 100)?,
            interval_ms: given.number("interval-ms", 10)?,
            pad: given.number("pad", 0)?,
            timeout: seconds(&mut given, "timeout", 30.0)?,
            checks_nonce: !given.is_on("no-nonce"),
            pids: pids(&given.text("pid").unwrap_or_default())?,
            threads: given.number("threads", 1)?,
            label: given.text("label").unwrap_or_default(),
        };
        given.finish()?;
        Ok(options)
    }
}

fn split(url: &str) -> Result<(String, String), String> {
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| format!("--url {url:?}: http://HOST:PORT/PATH, without TLS"))?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let port = if host.contains(':') { "" } else { ":80" };
    Ok((format!("{host}{port}"), format!("/{path}")))
}

fn mode(word: &str) -> Result<Mode, String> {
    let found = Mode::ALL.into_iter().find(|(name, _)| *name == word);
    found
        .map(|(_, mode)| mode)
        .ok_or_else(|| format!("--mode {word:?}: see --help"))
}

fn wire(word: Option<&str>) -> Result<Wire, String> {
    match word {
        None | Some("modern") => Ok(Wire::Modern),
        Some("legacy") => Ok(Wire::Legacy),
        Some(other) => Err(format!("--wire {other:?}: modern or legacy")),
    }
}

/// The members of a JSON object, without its braces.
fn members(object: &str) -> Result<String, String> {
    let object = object.trim();
    if object.is_empty() {
        return Ok(String::new());
    }
    let inner = object
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .ok_or_else(|| format!("--args {object:?}: a JSON object"))?;
    Ok(inner.trim().to_owned())
}

fn pids(list: &str) -> Result<Vec<u32>, String> {
    let pids = list.split(',').filter(|pid| !pid.is_empty());
    let pids = pids.map(|pid| pid.parse().map_err(|_| format!("--pid {pid:?}: a number")));
    pids.collect()
}

fn seconds(given: &mut Arguments, name: &str, default: f64) -> Result<Duration, String> {
    let seconds = given.number(name, default)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("--{name} {seconds}: seconds"))
}

fn at_least_one<N>(given: &mut Arguments, name: &str, default: N) -> Result<N, String>
where
    N: FromStr + Display + PartialOrd + From<u8>,
{
    let number = given.number(name, default)?;
    if number < N::from(1) {
        return Err(format!("--{name} {number}: at least 1"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, String> {
        Arguments::parse(line.split(' ').map(ToOwned::to_owned)).and_then(Options::of)
    }

    #[test]
    fn a_mode_brings_its_tool() {
        let sse = options("--url http://127.0.0.1:1/mcp --mode sse").unwrap();
        assert_eq!((&*sse.tool, &*sse.path), ("stream", "/mcp"));
        let open = options("--url http://host --mode open-tasks --args {\"k\":1}").unwrap();
        assert_eq!((&*open.host, &*open.path), ("host:80", "/"));
        assert_eq!((open.slow_ms, &*open.extra_arguments), (600_000, "\"k\":1"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("--mode sse", "--url"),
            ("--url https://host", "--url"),
            ("--url http://host --mode other", "--mode"),
            ("--url http://host --concurrency 0", "--concurrency"),
            ("--url http://host --seconds -1", "--seconds"),
            ("--url http://host --pid x", "--pid"),
            ("--url http://host --speed 1", "--speed"),
        ] {
            assert!(options(line).unwrap_err().contains(named), "{line}");
        }
    }
}
