//! loadgen: calls an MCP endpoint, checks every answer, and prints what it measured as one line of JSON.
//!
//! `loadgen --help` prints the options.

mod answer;
mod body;
mod calls;
mod client;
mod connection;
mod line;
mod open;
mod options;
mod preload;
mod run;
mod sse;
mod tally;
mod usage;
mod wire;

use std::process::ExitCode;
use std::sync::Arc;

use common::{Arguments, finish, runtime};

use crate::line::Line;
use crate::options::{Mode, Options, USAGE};
use crate::tally::Tally;
use crate::usage::{PeakMemory, Usage};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() || words.iter().any(|word| word == "--help") {
        return finish(Err(USAGE.to_owned()));
    }
    let options = Arguments::parse(words).and_then(Options::of);
    match options.and_then(measure) {
        Ok(line) => {
            line.print();
            if line.is_useless() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            }
        }
        Err(error) => finish(Err(error)),
    }
}

fn measure(options: Options) -> Result<Line, String> {
    let runtime = runtime(options.threads).map_err(|error| error.to_string())?;
    let options = Arc::new(options);
    let tally = Arc::new(Tally::default());
    let before = Usage::of(&options.pids);
    let peak = PeakMemory::watch(options.pids.clone());
    let (measured, opened) = runtime.block_on(async {
        match options.mode {
            Mode::Repeat(what) => (run::load(what, &options, &tally).await, None),
            Mode::Hold(what) => {
                let opened = open::hold(what, &options, &tally, before.rss_kib).await;
                (run::Measured::default(), Some(opened))
            }
        }
    });
    let peak_kib = peak.end().max(before.rss_kib);
    Ok(Line::of(&options, &tally, &measured)
        .with_memory(before.rss_kib, peak_kib)
        .with_open(opened))
}
