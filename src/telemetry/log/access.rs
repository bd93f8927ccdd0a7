//! The line of a request in the access log. It costs each request so little only because it is written without
//! the machinery of events; its layout is that of all other lines.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::Targets;

use super::fields::{name, quoted};
use super::form::LineForm;
use super::in_use::LOG;
use crate::clock::wall_ns;
use crate::mcp::json::quote;
use crate::task::view::digits;

/// What a filter knows the lines by.
const TARGET: &str = "raincheck::downstream::access_log";

/// Room for a usual line.
const USUAL_BYTES: usize = 192;

/// Whether the log's filter lets the lines through. Read for each request.
static PASSES: AtomicBool = AtomicBool::new(false);

/// Asks the filter that is used from now on.
pub(super) fn ask(filter: &Targets) {
    let passes = filter.would_enable(TARGET, &Level::INFO);
    PASSES.store(passes, Ordering::Relaxed);
}

/// A line that is not complete: what comes after its time.
#[derive(Debug)]
pub struct AccessLine {
    form: LineForm,
    text: String,
}

impl AccessLine {
    /// `None`: the filter lets no such line through.
    pub fn begin(method: &str, name: &str) -> Option<Self> {
        let form = LOG.get()?.form;
        let passes = PASSES.load(Ordering::Relaxed);
        passes.then(|| Self::of(form, method, name))
    }

    /// Completes and writes the line. `client`: the label of a client that is known.
    pub fn end(mut self, status: u16, took: Duration, client: &str) {
        self.complete(status, took, client);
        if let Some(log) = LOG.get() {
            log.output
                .say_soon(self.before_time(), wall_ns(), &self.text);
        }
    }

    fn of(form: LineForm, method: &str, name: &str) -> Self {
        let mut line = Self {
            form,
            text: String::with_capacity(USUAL_BYTES),
        };
        for part in match form {
            LineForm::Text => ["  INFO ", TARGET, ": request"],
            LineForm::Coloured => [
                "\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2m",
                TARGET,
                "\x1b[0m\x1b[2m:\x1b[0m request",
            ],
            LineForm::Json => ["\",\"level\":\"INFO\",\"message\":\"request\"", "", ""],
        } {
            line.text.push_str(part);
        }
        line.say("method", method);
        line.say("name", name);
        line
    }

    fn before_time(&self) -> &'static str {
        match self.form {
            LineForm::Text => "",
            LineForm::Coloured => "\x1b[2m",
            LineForm::Json => "{\"timestamp\":\"",
        }
    }

    fn complete(&mut self, status: u16, took: Duration, client: &str) {
        self.name("status");
        self.number::<3>(status.into());
        self.name("seconds");
        match took.as_secs() {
            0 => self.text.push('0'),
            // A string takes everything.
            seconds => write!(self.text, "{seconds}").unwrap_or_default(),
        }
        self.text.push('.');
        self.number::<6>(took.subsec_micros().into());
        self.say("client", client);
        if self.form == LineForm::Json {
            for part in [",\"target\":\"", TARGET, "\"}"] {
                self.text.push_str(part);
            }
        }
        self.text.push('\n');
    }

    /// Writes the last digits of a number.
    fn number<const PLACES: usize>(&mut self, number: u64) {
        let mut places = [b'0'; PLACES];
        digits(&mut places, number);
        // Digits are text.
        self.text
            .push_str(str::from_utf8(&places).unwrap_or_default());
    }

    fn say(&mut self, key: &str, value: &str) {
        self.name(key);
        let is_plain = |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        match self.form {
            // Nearly all values.
            _ if value.bytes().all(is_plain) => {
                self.text.push('"');
                self.text.push_str(value);
                self.text.push('"');
            }
            LineForm::Json => self.text.push_str(&quote(value)),
            LineForm::Text | LineForm::Coloured => {
                quoted(&mut self.text, value).unwrap_or_default();
            }
        }
    }

    fn name(&mut self, key: &str) {
        match self.form {
            LineForm::Json => {
                for part in [",\"", key, "\":"] {
                    self.text.push_str(part);
                }
            }
            LineForm::Text => {
                for part in [" ", key, "="] {
                    self.text.push_str(part);
                }
            }
            LineForm::Coloured => {
                self.text.push(' ');
                name(&mut self.text, key, true).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::info;
    use tracing::subscriber::with_default;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::form::layer;
    use super::super::written::Written;
    use super::*;

    /// The line without its time, as an event of the same fields is written.
    fn as_event(form: LineForm, name: &str, client: &str) -> (String, String) {
        let written = Written::default();
        let to = written.clone();
        let log = Registry::default().with(layer(form, move || to.clone()));
        with_default(log, || {
            info!(target: TARGET, method = "tools/call", name, status = 200_u16, seconds = 61.000_412, client, "request");
        });
        let line = written.text();
        let (before, rest) = line.split_at(line.find("20").unwrap());
        let (_time, after) = rest.split_at(rest.find('Z').unwrap() + 1);
        (before.to_owned(), after.to_owned())
    }

    #[test]
    fn it_looks_like_every_other_line() {
        for (name, client) in [
            ("echo", ""),
            ("a\"b\\c'd", "agent \u{e4}"),
            ("a\u{9b}b\n\u{301}\u{7f}", "\u{200b}"),
        ] {
            for form in [LineForm::Text, LineForm::Coloured, LineForm::Json] {
                let mut line = AccessLine::of(form, "tools/call", name);
                line.complete(200, Duration::from_micros(61_000_412), client);
                let expected = as_event(form, name, client);
                assert_eq!((line.before_time().to_owned(), line.text), expected);
            }
        }
    }
}
