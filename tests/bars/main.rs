//! The reliability bars: the built program, two replicas on a real Redis, a server that counts, and what must hold when
//! any of them is killed, frozen or emptied.
//!
//! `bars NAME [--size 0.1] [--seed S]` runs one bar and prints one JSON line; the exit code says whether it held. The
//! program is only ever driven from outside.
#![expect(
    clippy::disallowed_methods,
    reason = "a bar owns its tasks and reads its own environment"
)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the line is the output"
)]

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::signal::unix::{SignalKind, signal};

mod bars;
mod book;
mod client;
#[path = "../support/events.rs"]
mod events;
#[path = "../support/eventually.rs"]
#[expect(dead_code, reason = "a bar has a runtime")]
mod eventually;
mod faulty;
#[path = "../support/http_request.rs"]
#[expect(dead_code, reason = "the misbehaving server has one path")]
mod http_request;
#[path = "../support/hyper_server.rs"]
mod hyper_server;
#[path = "../support/memory.rs"]
mod memory;
#[path = "../support/ports.rs"]
#[expect(dead_code, reason = "the address is asked for")]
mod ports;
#[path = "../support/process.rs"]
#[expect(dead_code, reason = "a bar counts the processes that are left")]
mod process;
mod report;
mod rig;
#[path = "../support/scripted.rs"]
#[expect(dead_code, reason = "the misbehaving server keeps its own book")]
mod scripted;
mod seed;
mod session;
mod upstream;

use report::Report;
use seed::Seed;

/// What every bar is told.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// The share of the full size, above 0 and at most 1.
    size: f64,
    seed: Seed,
}

impl Asked {
    /// So many of `full`, at least `least`.
    fn of(&self, full: u32, least: u32) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a small count"
        )]
        let share = (f64::from(full) * self.size).round() as u32;
        share.max(least)
    }
}

struct Bar {
    name: &'static str,
    /// How many of what at full size.
    n: u32,
    /// After so long a run is given up.
    limit: Duration,
    run: for<'a> fn(Asked, &'a mut Report) -> BoxFuture<'a, ()>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        // A test runner asks every test binary so; there are no tests here.
        return ExitCode::SUCCESS;
    }
    let Some((bar, asked)) = read(&arguments) else {
        let names: Vec<&str> = bars::ALL.iter().map(|bar| bar.name).collect();
        eprintln!(
            "usage: bars NAME [--size 0.1] [--seed S]; NAME is one of {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let held = runtime.block_on(run(bar, asked));
    // Whatever still runs in the background has no say in the end.
    runtime.shutdown_background();
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn read(arguments: &[String]) -> Option<(&'static Bar, Asked)> {
    let mut arguments = arguments.iter();
    let name = arguments.next()?;
    let bar = bars::ALL.iter().find(|bar| bar.name == name)?;
    let mut asked = Asked {
        size: 1.0,
        seed: Seed::random(),
    };
    while let Some(flag) = arguments.next() {
        let value = arguments.next()?;
        match flag.as_str() {
            "--size" => {
                asked.size = value
                    .parse()
                    .ok()
                    .filter(|size| *size > 0.0 && *size <= 1.0)?;
            }
            "--seed" => asked.seed = Seed::of(value.parse().ok()?),
            _ => return None,
        }
    }
    Some((bar, asked))
}

/// Runs the bar to its end, its limit or a signal. What it started is ended by being dropped.
async fn run(bar: &Bar, asked: Asked) -> bool {
    let began = Instant::now();
    let mut report = Report::default();
    let mut terminate = signal(SignalKind::terminate()).expect("signals");
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals");
    let trial = AssertUnwindSafe((bar.run)(asked, &mut report)).catch_unwind();
    let cut_short = tokio::select! {
        ended = tokio::time::timeout(bar.limit, trial) => match ended {
            Ok(Ok(())) => None,
            Ok(Err(panic)) => Some(format!("panicked: {}", said(panic.as_ref()))),
            Err(_elapsed) => Some(format!("not at its end after {} s", bar.limit.as_secs())),
        },
        _ = terminate.recv() => Some("terminated".to_owned()),
        _ = interrupt.recv() => Some("interrupted".to_owned()),
    };
    if let Some(why) = cut_short {
        report.breaks(why);
    }
    println!("{}", report.line(bar.name, bar.n, asked, began.elapsed()));
    report.ok()
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("?").to_owned()
}
