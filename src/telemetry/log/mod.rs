//! Where logs go: to stderr, as text or as JSON. Values are escaped in both, so that a client cannot forge a
//! line. The filter can be changed while the program runs.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::panic::{self, PanicHookInfo};

use tracing::{Level, Metadata, enabled, error};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::repeats::{LINES_DROPPED, Repeats};
use crate::base::caught::is_caught;
use crate::base::clock::wall_ns;
use crate::base::io_reason::io_reason;
use crate::base::lock::Mutex;

mod access;
mod fields;
mod form;
mod in_use;
mod last_words;
mod output;
mod stamp;
mod task_end;
mod values;
#[cfg(test)]
mod written;

pub use access::{AccessRecord, are_requests_logged};
use form::{LineForm, layer};
use in_use::{LOG, Log};
pub use last_words::plain;
use output::Output;
pub use task_end::TaskEndRecord;

/// The settings of the log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Levels, in general and by module: `info`, `info,raincheck=debug`.
    pub filter: String,
    /// One JSON object a line instead of text.
    pub json: bool,
    /// `true` if text has colours in a terminal.
    pub colours: bool,
}

/// Starts logging. Call it once and first: earlier events are lost.
pub fn init(settings: &LogSettings) -> Result<(), String> {
    let filter = parse(&settings.filter)?;
    ask(&filter);
    let (filter, handle) = reload::Layer::new(filter);
    let output = crate::platform::pipe::standard_error()
        .map_err(|error| format!("no log can be written: {}", io_reason(&error)))?;
    let log = Log {
        form: match (settings.json, settings.colours) {
            (true, _) => LineForm::Json,
            (false, true) if io::stderr().is_terminal() => LineForm::Coloured,
            (false, _) => LineForm::Text,
        },
        output: Output::new(output),
        handle,
        text: Mutex::new(settings.filter.clone()),
    };
    // The layer below borrows the output for the life of the process, so the log is set first.
    LOG.set(log).map_err(|_| TWICE)?;
    let log = LOG.get().ok_or(TWICE)?;
    tracing_subscriber::registry()
        .with(filter)
        .with(layer(log.form, LogWriters(&log.output)).with_filter(Repeats))
        .try_init()
        .map_err(|_| TWICE)?;
    let started = log.output.start();
    started.map_err(|error| format!("no thread for the log: {}", io_reason(&error)))?;
    panic::set_hook(Box::new(panicked));
    Ok(())
}

const TWICE: &str = "logging was set up twice";

/// The way of events to stderr.
struct LogWriters(&'static Output);

impl<'w> MakeWriter<'w> for LogWriters {
    type Writer = EventRecord;

    fn make_writer(&'w self) -> EventRecord {
        EventRecord {
            output: self.0,
            say: Output::say_now,
        }
    }

    fn make_writer_for(&'w self, metadata: &Metadata<'_>) -> EventRecord {
        EventRecord {
            output: self.0,
            say: match metadata.name() {
                LINES_DROPPED => Output::say_in_any_case,
                _ => Output::say_now,
            },
        }
    }
}

/// The way of one event: a whole line at a time.
struct EventRecord {
    output: &'static Output,
    say: fn(&Output, &[u8]),
}

impl io::Write for EventRecord {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        (self.say)(self.output, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs a panic, and writes what waits before the process may abort. The usual report would wait for the reader of stderr.
fn panicked(panic: &PanicHookInfo<'_>) {
    if is_caught() {
        return;
    }
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    if enabled!(Level::ERROR) {
        error!(backtrace, "thread {thread:?} {panic}");
        finish();
    } else {
        // What ends the process or a task is told whatever the filter is.
        say_last(&format!("thread {thread:?} {panic}"));
    }
}

/// Writes the last line of a process, whatever the filter is, and waits for a short time until all lines are written.
/// Returns `false` if logging has not begun.
pub fn say_last(text: &str) -> bool {
    let Some(log) = LOG.get() else { return false };
    let line = last_words::line(log.form, text, wall_ns());
    log.output.say_in_any_case(line.as_bytes());
    log.output.finish();
    true
}

/// Waits for a short time until all lines are written. Call it when the process ends.
pub fn finish() {
    if let Some(log) = LOG.get() {
        log.output.finish();
    }
}

/// The filter that is in use, as it was written. `None`: logging has not begun.
pub fn filter() -> Option<String> {
    Some(LOG.get()?.text.lock().clone())
}

/// Changes the filter from now on.
pub fn set_filter(text: &str) -> Result<(), String> {
    let filter = parse(text)?;
    let log = LOG.get().ok_or("logging has not begun")?;
    // This step may fail, so it comes before the other copies of the filter change.
    let changed = log.handle.reload(filter.clone());
    changed.map_err(|error| error.to_string())?;
    ask(&filter);
    text.clone_into(&mut log.text.lock());
    Ok(())
}

/// Passes the filter that is used from now on to the lines that are no events.
fn ask(filter: &Targets) {
    access::ask(filter);
    task_end::ask(filter);
}

fn parse(text: &str) -> Result<Targets, String> {
    let wrong = || {
        format!(
            "{text:?} is not a log filter; write \"info\", \"debug\" or \"info,raincheck=debug\""
        )
    };
    // The settings allow spaces around commas, and `Targets` does not take them off.
    let text = text.replace(' ', "");
    // A word that is no level would be the name of a module, and silence all others.
    let is_level = |part: &str| {
        let level = part.rsplit('=').next().unwrap_or_default();
        !level.is_empty() && level.parse::<LevelFilter>().is_ok()
    };
    if !text.split(',').all(is_level) {
        return Err(wrong());
    }
    text.parse().map_err(|_| wrong())
}
