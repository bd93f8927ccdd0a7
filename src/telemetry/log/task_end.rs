//! The line that a task ended. It comes as often as tasks do, so it is written without the machinery of events; its layout is that
//! of all other lines.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Level;
use tracing_subscriber::filter::Targets;

use super::fields::name;
use super::form::LineForm;
use super::in_use::LOG;
use super::output::gathered::GatheredLines;
use super::values::{say, whole};
use crate::base::clock::wall_ns;
use crate::base::printable::{Escaped, printable_json};
use crate::base::utc::digits;
use crate::mcp::json::quote;
use crate::task::id::TaskId;

/// The target by which a filter selects the lines.
const TARGET: &str = "raincheck::telemetry::tasks";

/// `true` if the log's filter lets the lines through.
static PASSES: AtomicBool = AtomicBool::new(false);

/// Asks the filter that is used from now on.
pub(super) fn ask(filter: &Targets) {
    let passes = filter.would_enable(TARGET, &Level::INFO);
    PASSES.store(passes, Ordering::Relaxed);
}

/// The end of a task, for its line.
#[derive(Debug, Clone, Copy)]
pub struct TaskEndRecord<'l> {
    pub task: TaskId,
    pub tool: &'l str,
    pub outcome: &'l str,
    pub reason: &'l str,
    pub effect: &'l str,
    /// The duration of the call.
    pub took_ms: u64,
    pub queue_ms: u64,
    pub input_ms: u64,
    /// The owner.
    pub replica: &'l str,
    /// The label of a client that is known.
    pub caller: &'l str,
    /// The beginning of the hash of the caller.
    pub caller_hash: &'l str,
    /// The trace of the call, where it is recorded.
    pub trace: &'l str,
    /// The id of the job that the call started at the server.
    pub job: &'l str,
    /// `true` if a client was notified of the task.
    pub announced: bool,
}

impl TaskEndRecord<'_> {
    pub fn write(&self) {
        if !PASSES.load(Ordering::Relaxed) {
            return;
        }
        if let Some(log) = LOG.get() {
            let now_ns = wall_ns();
            let output = &log.output;
            output.say_now_if_rare(|out| self.add(out, log.form, now_ns));
        }
    }

    fn add(&self, out: &mut GatheredLines, form: LineForm, now_ns: u64) {
        let [before, after] = match form {
            LineForm::Text => ["", "  INFO raincheck::telemetry::tasks: task ended"],
            LineForm::Coloured => [
                "\x1b[2m",
                "\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mraincheck::telemetry::tasks\x1b[0m\x1b[2m:\x1b[0m task ended",
            ],
            LineForm::Json => [
                "{\"timestamp\":\"",
                "\",\"level\":\"INFO\",\"message\":\"task ended\"",
            ],
        };
        out.bytes.extend_from_slice(before.as_bytes());
        out.stamp(now_ns);
        out.bytes.extend_from_slice(after.as_bytes());
        let mut fields = Fields {
            out: &mut out.bytes,
            form,
        };
        fields.bare("task", &(self.task.short() + ".."));
        fields.bare("tool", self.tool);
        fields.quoted("outcome", self.outcome);
        fields.quoted("reason", self.reason);
        fields.quoted("effect", self.effect);
        fields.seconds("seconds", self.took_ms);
        fields.seconds("queue_seconds", self.queue_ms);
        fields.seconds("input_seconds", self.input_ms);
        fields.quoted("replica", self.replica);
        fields.quoted("caller", self.caller);
        fields.quoted("caller_hash", self.caller_hash);
        fields.quoted("trace", self.trace);
        if !self.job.is_empty() {
            fields.quoted("job", self.job);
        }
        fields.flag("announced", self.announced);
        let end = match form {
            LineForm::Text | LineForm::Coloured => "\n",
            LineForm::Json => ",\"target\":\"raincheck::telemetry::tasks\"}\n",
        };
        out.bytes.extend_from_slice(end.as_bytes());
    }
}

/// The fields of a line that is being written.
struct Fields<'l> {
    out: &'l mut Vec<u8>,
    form: LineForm,
}

impl Fields<'_> {
    fn name(&mut self, text: &str) {
        let parts = match self.form {
            LineForm::Json => [",\"", text, "\":"],
            LineForm::Text => [" ", text, "="],
            LineForm::Coloured => {
                self.out.push(b' ');
                // A buffer takes everything.
                return name(&mut Utf8(self.out), text, true).unwrap_or_default();
            }
        };
        for part in parts {
            self.out.extend_from_slice(part.as_bytes());
        }
    }

    fn quoted(&mut self, name: &str, value: &str) {
        self.name(name);
        say(self.out, self.form, value);
    }

    /// A value that is no text in quotes, except in JSON.
    fn bare(&mut self, name: &str, value: &str) {
        self.name(name);
        if self.form == LineForm::Json {
            let value = quote(value);
            self.out
                .extend_from_slice(printable_json(&value).as_bytes());
        } else {
            Escaped(&mut Utf8(self.out))
                .write_str(value)
                .unwrap_or_default();
        }
    }

    /// As few digits as the milliseconds need, and one at least.
    fn seconds(&mut self, name: &str, ms: u64) {
        self.name(name);
        whole(self.out, ms / 1000);
        let mut places = [b'0'; 3];
        digits(&mut places, ms % 1000);
        let needed = match places {
            [_, b'0', b'0'] => 1,
            [_, _, b'0'] => 2,
            _ => 3,
        };
        self.out.push(b'.');
        self.out.extend(places.iter().take(needed));
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        self.name(name);
        let word: &[u8] = if is_set { b"true" } else { b"false" };
        self.out.extend_from_slice(word);
    }
}

/// Text that is written as bytes.
struct Utf8<'b>(&'b mut Vec<u8>);

impl std::fmt::Write for Utf8<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
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
    use crate::telemetry::seconds::seconds;

    /// The line without its time, as an event of the same fields is written.
    fn as_event(form: LineForm, line: &TaskEndRecord<'_>) -> (String, String) {
        let written = Written::default();
        let to = written.clone();
        let log = Registry::default().with(layer(form, move || to.clone()));
        with_default(log, || {
            info!(
                target: TARGET,
                task = ?line.task,
                tool = %line.tool,
                outcome = line.outcome,
                reason = line.reason,
                effect = line.effect,
                seconds = seconds(line.took_ms),
                queue_seconds = seconds(line.queue_ms),
                input_seconds = seconds(line.input_ms),
                replica = line.replica,
                caller = line.caller,
                caller_hash = line.caller_hash,
                trace = line.trace,
                announced = line.announced,
                "task ended"
            );
        });
        without_time(&written.text())
    }

    #[test]
    fn it_looks_like_every_other_line() {
        let plain = TaskEndRecord {
            task: TaskId::random(),
            tool: "echo",
            outcome: "completed",
            reason: "",
            effect: "",
            took_ms: 1,
            queue_ms: 0,
            input_ms: 61_050,
            replica: "pod-1",
            caller: "",
            caller_hash: "0af76519",
            trace: "",
            job: "",
            announced: true,
        };
        let strange = TaskEndRecord {
            tool: "a \"b\\c\n\x1b[2J\u{9b}\u{e4}",
            reason: "deadline",
            took_ms: 2_000,
            queue_ms: 86_400_120,
            caller: "agent \u{e4}\n\u{200b}",
            announced: false,
            ..plain
        };
        for line in [plain, strange] {
            for form in [LineForm::Text, LineForm::Coloured, LineForm::Json] {
                let mut out = GatheredLines::default();
                line.add(&mut out, form, 1_785_196_800_123_456_789);
                let written = String::from_utf8(out.bytes).unwrap();
                assert!(written.contains("2026-07-28T00:00:00.123456Z"), "{written}");
                assert_eq!(without_time(&written), as_event(form, &line));
            }
        }
        let mut out = GatheredLines::default();
        let of_job = TaskEndRecord {
            job: "j \"1\"",
            ..plain
        };
        of_job.add(&mut out, LineForm::Json, 0);
        let written = String::from_utf8(out.bytes).unwrap();
        assert!(written.contains(r#""job":"j \"1\"""#), "{written}");
    }
}
