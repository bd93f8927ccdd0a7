//! Where logs go: to stderr, as text or as JSON. Values are escaped in both, so that a client cannot forge a
//! line. The filter can be changed while the program runs.

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::log_fields::fields;
use super::repeats::Repeats;
use crate::lock::Mutex;

/// What to log and how.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Levels, in general and by module: `info`, `info,raincheck=debug`.
    pub filter: String,
    /// One JSON object a line instead of text.
    pub json: bool,
    /// Whether text has colours in a terminal.
    pub colours: bool,
}

/// The filter of this process, once logging has begun.
static FILTER: OnceLock<LogFilter> = OnceLock::new();

#[derive(Debug)]
struct LogFilter {
    handle: Handle<Targets, Registry>,
    /// The filter as it was written.
    text: Mutex<String>,
}

/// Starts logging. Call it once and first: earlier events are lost.
pub fn init(settings: &LogSettings) -> Result<(), String> {
    let (filter, handle) = reload::Layer::new(parse(&settings.filter)?);
    let output = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let output = if settings.json {
        output.json().flatten_event(true).boxed()
    } else {
        let colours = settings.colours && io::stderr().is_terminal();
        output.with_ansi(colours).fmt_fields(fields()).boxed()
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(output.with_filter(Repeats))
        .try_init()
        .map_err(|_| "logging was set up twice".to_owned())?;
    let text = Mutex::new(settings.filter.clone());
    let _ = FILTER.set(LogFilter { handle, text });
    Ok(())
}

/// The filter that is in use, as it was written. `None`: logging has not begun.
pub fn filter() -> Option<String> {
    Some(FILTER.get()?.text.lock().clone())
}

/// Changes the filter from now on.
pub fn set_filter(text: &str) -> Result<(), String> {
    let filter = parse(text)?;
    let in_use = FILTER.get().ok_or("logging has not begun")?;
    let changed = in_use.handle.reload(filter);
    changed.map_err(|error| error.to_string())?;
    text.clone_into(&mut in_use.text.lock());
    Ok(())
}

fn parse(text: &str) -> Result<Targets, String> {
    let wrong = || {
        format!(
            "{text:?} is not a log filter; write \"info\", \"debug\" or \"info,raincheck=debug\""
        )
    };
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
