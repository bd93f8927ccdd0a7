//! The line of a request in the access log. It costs each request so little only because it is written without
//! the machinery of events; its layout is that of all other lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::Targets;

use super::form::LineForm;
use super::in_use::LOG;
use super::output::gathered::GatheredLines;
use super::values::{is_short_and_plain, last_digits, say, say_plain, whole};
use crate::base::clock::wall_ns;
use crate::base::printable::short;

/// The target by which a filter selects the lines.
const TARGET: &str = "raincheck::downstream::access_log";

/// `true` if the log's filter lets the lines through. Read for each request.
static PASSES: AtomicBool = AtomicBool::new(false);

/// Asks the filter that is used from now on.
pub(super) fn ask(filter: &Targets) {
    let passes = filter.would_enable(TARGET, &Level::INFO);
    PASSES.store(passes, Ordering::Relaxed);
}

/// Returns `true` if lines of requests are written.
pub fn are_requests_logged() -> bool {
    PASSES.load(Ordering::Relaxed)
}

/// A message of a client whose answer begins.
#[derive(Debug, Clone, Copy)]
pub struct AccessRecord<'l> {
    /// As the client wrote it, and so is the name.
    pub method: &'l str,
    /// The tool.
    pub name: &'l str,
    pub status: u16,
    /// The time that the client waited.
    pub took: Duration,
    /// The label of a client that is known.
    pub client: &'l str,
    /// The beginning of the hash of the caller.
    pub caller_hash: &'l str,
    /// The trace that the request is part of, where it is known.
    pub trace: &'l str,
    /// The beginning of the id of the task that the message is about, or that its call became.
    pub task: &'l str,
}

impl AccessRecord<'_> {
    pub fn write(&self) {
        if let Some(log) = LOG.get() {
            let now_ns = wall_ns();
            log.output.say_soon(|out| self.add(out, log.form, now_ns));
        }
    }

    fn add(&self, out: &mut GatheredLines, form: LineForm, now_ns: u64) {
        match form {
            LineForm::Text => self.add_as::<Text>(out, now_ns),
            LineForm::Coloured => self.add_as::<Coloured>(out, now_ns),
            LineForm::Json => self.add_as::<Json>(out, now_ns),
        }
    }

    fn add_as<F: Form>(&self, out: &mut GatheredLines, now_ns: u64) {
        out.bytes.extend_from_slice(F::LAYOUT.time.as_bytes());
        out.stamp(now_ns);
        let out = &mut out.bytes;
        out.extend_from_slice(F::LAYOUT.method.as_bytes());
        say_told(out, F::FORM, self.method);
        out.extend_from_slice(F::LAYOUT.name.as_bytes());
        say_told(out, F::FORM, self.name);
        out.extend_from_slice(F::LAYOUT.status.as_bytes());
        last_digits::<3>(out, self.status.into());
        out.extend_from_slice(F::LAYOUT.seconds.as_bytes());
        whole(out, self.took.as_secs());
        out.push(b'.');
        last_digits::<6>(out, self.took.subsec_micros().into());
        out.extend_from_slice(F::LAYOUT.client.as_bytes());
        say(out, F::FORM, self.client);
        out.extend_from_slice(F::LAYOUT.caller_hash.as_bytes());
        say(out, F::FORM, self.caller_hash);
        out.extend_from_slice(F::LAYOUT.trace.as_bytes());
        say(out, F::FORM, self.trace);
        out.extend_from_slice(F::LAYOUT.task.as_bytes());
        say(out, F::FORM, self.task);
        out.extend_from_slice(F::LAYOUT.end.as_bytes());
    }
}

/// A form of lines. A type for each, so that the lengths of what is always written are known when this is compiled.
trait Form {
    const FORM: LineForm;
    const LAYOUT: Layout;
}

struct Text;
struct Coloured;
struct Json;

impl Form for Text {
    const FORM: LineForm = LineForm::Text;
    const LAYOUT: Layout = TEXT;
}

impl Form for Coloured {
    const FORM: LineForm = LineForm::Coloured;
    const LAYOUT: Layout = COLOURED;
}

impl Form for Json {
    const FORM: LineForm = LineForm::Json;
    const LAYOUT: Layout = JSON;
}

/// The text before each value, and at the end.
struct Layout {
    time: &'static str,
    method: &'static str,
    name: &'static str,
    status: &'static str,
    seconds: &'static str,
    client: &'static str,
    caller_hash: &'static str,
    trace: &'static str,
    task: &'static str,
    end: &'static str,
}

const TEXT: Layout = Layout {
    time: "",
    method: "  INFO raincheck::downstream::access_log: request method=",
    name: " name=",
    status: " status=",
    seconds: " seconds=",
    client: " client=",
    caller_hash: " caller_hash=",
    trace: " trace=",
    task: " task=",
    end: "\n",
};

const COLOURED: Layout = Layout {
    time: "\x1b[2m",
    method: "\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mraincheck::downstream::access_log\x1b[0m\x1b[2m:\x1b[0m request \
             \x1b[3mmethod\x1b[0m\x1b[2m=\x1b[0m",
    name: " \x1b[3mname\x1b[0m\x1b[2m=\x1b[0m",
    status: " \x1b[3mstatus\x1b[0m\x1b[2m=\x1b[0m",
    seconds: " \x1b[3mseconds\x1b[0m\x1b[2m=\x1b[0m",
    client: " \x1b[3mclient\x1b[0m\x1b[2m=\x1b[0m",
    caller_hash: " \x1b[3mcaller_hash\x1b[0m\x1b[2m=\x1b[0m",
    trace: " \x1b[3mtrace\x1b[0m\x1b[2m=\x1b[0m",
    task: " \x1b[3mtask\x1b[0m\x1b[2m=\x1b[0m",
    end: "\n",
};

const JSON: Layout = Layout {
    time: "{\"timestamp\":\"",
    method: "\",\"level\":\"INFO\",\"message\":\"request\",\"method\":",
    name: ",\"name\":",
    status: ",\"status\":",
    seconds: ",\"seconds\":",
    client: ",\"client\":",
    caller_hash: ",\"caller_hash\":",
    trace: ",\"trace\":",
    task: ",\"task\":",
    end: ",\"target\":\"raincheck::downstream::access_log\"}\n",
};

/// Writes a client's text in quotes, as safe text.
fn say_told(out: &mut Vec<u8>, form: LineForm, told: &str) {
    // One look at nearly all texts.
    if is_short_and_plain(told) {
        say_plain(out, told);
    } else {
        say(out, form, &short(told));
    }
}

#[cfg(test)]
mod tests {
    use tracing::info;
    use tracing::subscriber::with_default;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::form::layer;
    use super::super::written::{Written, without_time};
    use super::*;

    /// The line without its time, as an event of the same fields is written.
    fn as_event(form: LineForm, name: &str, client: &str) -> (String, String) {
        let written = Written::default();
        let to = written.clone();
        let log = Registry::default().with(layer(form, move || to.clone()));
        with_default(log, || {
            info!(target: TARGET, method = "tools/call", name, status = 200_u16, seconds = 61.000_412, client, caller_hash = "0af76519", trace = "", task = "0af7..", "request");
        });
        without_time(&written.text())
    }

    #[test]
    fn it_looks_like_every_other_line() {
        for (name, client) in [
            ("echo", ""),
            ("a\"b\\c'd", "agent \u{e4}"),
            (
                "a\u{9b}b\n\u{301}\u{7f}",
                "a\u{9b}b\n\u{301}\u{7f}\u{200b}\u{202e}",
            ),
        ] {
            for form in [LineForm::Text, LineForm::Coloured, LineForm::Json] {
                let line = AccessRecord {
                    method: "tools/call",
                    name,
                    status: 200,
                    took: Duration::from_micros(61_000_412),
                    client,
                    caller_hash: "0af76519",
                    trace: "",
                    task: "0af7..",
                };
                let mut out = GatheredLines::default();
                line.add(&mut out, form, 1_785_196_800_123_456_789);
                let written = String::from_utf8(out.bytes).unwrap();
                assert!(written.contains("2026-07-28T00:00:00.123456Z"), "{written}");
                assert_eq!(without_time(&written), as_event(form, &short(name), client));
            }
        }
    }
}
