//! The meaning of the answers of a job's tools.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::base::printable::is_printable;
use crate::jobs::document::{Document, JobSource, as_text};
use crate::jobs::job_call::JobCall;
use crate::jobs::words::{Meaning, is_success};
use crate::jobs::{JobResult, JobRule, PollUnit, is_default};
use crate::mcp::json::{Object, Writer, is_object, set};

/// The member of `_meta` in the result that has the id of the job.
const JOB: &str = "io.raincheck/job";

/// The longest id of a job, in bytes.
const ID_MAX: usize = 512;

/// The most characters of a server's words that clients see.
const MESSAGE_MAX: usize = 500;

/// The bounds of the time that a server asks for between checks.
const POLL_MIN: Duration = Duration::from_millis(500);
const POLL_MAX: Duration = Duration::from_mins(5);

/// A job at the server, as its tools know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobHandle {
    /// A text or a number.
    pub id: Value,
    /// The arguments of the start that the other tools may need, as JSON.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub copied: BTreeMap<String, Box<str>>,
    /// The job is known to one process or session only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_pinned: bool,
}

/// The answer of a start.
#[derive(Debug, PartialEq)]
pub enum StartAnswer {
    /// A job has begun.
    Begun(JobHandle),
    /// There is nothing to follow: an error, or a job that has ended already.
    Answer,
    /// The answer names no job.
    NoId,
}

/// The answer of a check.
#[derive(Debug, Default)]
pub struct JobReading {
    /// `None`: the answer has a word that is not known.
    pub meaning: Option<Meaning>,
    /// The word of the server that has no known meaning.
    pub unknown: Option<String>,
    /// The progress that the answer shows, in the members of `notifications/progress`. An object.
    pub progress: String,
    /// The time until the next check that the server asks for.
    pub poll: Option<Duration>,
}

impl JobCall {
    /// Reads the answer of the start, which was called with these `params`.
    pub fn start_answer(&self, answer: &RawValue, params: &str) -> StartAnswer {
        let Some(document) = Document::of(answer).filter(|it| !it.is_error) else {
            return StartAnswer::Answer;
        };
        // A start that comes again finds a job that may have ended meanwhile, and its answer is not the result.
        if self.rule.key.is_none() && self.rule.had_ended(&document) {
            return StartAnswer::Answer;
        }
        let params = Object::parse(params).unwrap_or_default();
        let given = params.get_object("arguments").unwrap_or_default();
        match self.id(&document, &given).filter(is_id) {
            Some(id) => StartAnswer::Begun(JobHandle {
                copied: self.copied(&given),
                is_pinned: false,
                id,
            }),
            None => StartAnswer::NoId,
        }
    }

    fn id(&self, document: &Document, given: &Object<'_>) -> Option<Value> {
        match &self.rule.id {
            Some(JobSource::Pointer(pointer)) => document.value.pointer(pointer).cloned(),
            Some(JobSource::Text(pattern)) => document.find(pattern).map(Value::from),
            Some(JobSource::Argument(name)) => serde_json::from_str(given.get(name)?.get()).ok(),
            None => {
                let members = document.value.as_object()?;
                let named = self.id_argument().and_then(|name| member(members, name));
                named.or_else(|| members.get("id")).cloned()
            }
        }
    }
}

/// Returns the member of that name, whatever its case and its `_` and `-`, as in `jobId` and `job_id`.
fn member<'m>(members: &'m Map<String, Value>, name: &str) -> Option<&'m Value> {
    let fold = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let wanted = fold(name);
    let mut found = members.iter().filter(|(key, _)| fold(key) == wanted);
    found.next().map(|(_, value)| value)
}

/// Returns `true` if the value can be the id of a job: a number, or a short text that is printable.
fn is_id(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_u64() || number.is_i64(),
        Value::String(text) => {
            !text.is_empty() && text.len() <= ID_MAX && text.chars().all(is_printable)
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

impl JobRule {
    /// Reads an answer about a job.
    pub fn read(&self, document: &Document) -> JobReading {
        let mut reading = JobReading {
            progress: self.progress(document),
            poll: self.asked_poll(document),
            ..JobReading::default()
        };
        let accepted = self.acceptors.iter().find(|it| it.accepts(document));
        if let Some(acceptor) = accepted {
            reading.meaning = Some(acceptor.means);
            return reading;
        }
        if document.is_error {
            reading.meaning = Some(Meaning::Retry);
            return reading;
        }
        let Some(word) = self.state_word(document) else {
            reading.meaning = Some(Meaning::Retry);
            return reading;
        };
        reading.meaning = self.words.meaning(&word);
        if reading.meaning.is_none() {
            reading.unknown = Some(word.chars().take(MESSAGE_MAX).collect());
        }
        if reading.meaning.is_some_and(Meaning::is_end)
            && let Some(outcome) = &self.outcome
            && let Some(word) = outcome.word(document)
            && let Some(means) = self.words.meaning(&word).filter(|it| it.is_end())
        {
            reading.meaning = Some(means);
        }
        reading
    }

    /// Returns `true` if the answer of a start says that the job has ended already. Patterns are for the sentences of the status
    /// tool, and the success of a start is not that of its job.
    fn had_ended(&self, start: &Document) -> bool {
        if matches!(self.state, Some(JobSource::Text(_))) {
            return false;
        }
        let word = self.state_word(start);
        word.is_some_and(|word| {
            let means = self.words.meaning(&word);
            means.is_some_and(Meaning::is_end) && !is_success(&word)
        })
    }

    fn state_word<'d>(&self, document: &'d Document) -> Option<Cow<'d, str>> {
        if let Some(state) = &self.state {
            return state.word(document);
        }
        let mut usual = ["/status", "/state"].into_iter();
        usual.find_map(|pointer| document.word_at(pointer))
    }

    fn progress(&self, document: &Document) -> String {
        let at = |pointer: &Option<Box<str>>| document.word_at(pointer.as_deref()?);
        let number = |pointer: &Option<Box<str>>| {
            let word = at(pointer)?;
            let number: f64 = word.trim().trim_end_matches('%').parse().ok()?;
            serde_json::Number::from_f64(number)
        };
        let mut shown = Writer::object();
        for (key, pointer) in [("progress", &self.progress), ("total", &self.total)] {
            if let Some(number) = number(pointer) {
                // Whole numbers stay whole.
                let text = number.to_string();
                shown.raw(key, text.strip_suffix(".0").unwrap_or(&text));
            }
        }
        if let Some(message) = at(&self.message) {
            let message: String = message.chars().take(MESSAGE_MAX).collect();
            shown.str("message", &message);
        }
        shown.end()
    }

    /// Returns the time until the next check that the server asks for. It is shorter than the time after which a job is lost, so
    /// that one failed check is not the last one.
    fn asked_poll(&self, document: &Document) -> Option<Duration> {
        let (pointer, unit) = self.poll.from.as_ref()?;
        let number: f64 = document.word_at(pointer)?.trim().parse().ok()?;
        let seconds = match unit {
            PollUnit::Seconds => number,
            PollUnit::Milliseconds => number / 1000.0,
        };
        // `from_secs_f64` panics on a negative or a huge number, which the server may send.
        let asked = Duration::try_from_secs_f64(seconds).ok()?;
        let most = POLL_MAX.min(self.poll.lost_after / 2);
        Some(asked.min(most).max(POLL_MIN))
    }

    /// Returns the result of a job that has ended so, from the answer of the last check. `id`: as JSON.
    pub fn result_of(&self, means: Meaning, answer: &RawValue, id: &str) -> Box<RawValue> {
        let part = self.part_of(means, answer);
        marked(part.as_deref().unwrap_or(answer), id, means)
    }

    /// The part of the last answer that is the result. `None`: all of it is.
    fn part_of(&self, means: Meaning, answer: &RawValue) -> Option<Box<RawValue>> {
        let JobResult::Pointer(pointer) = &self.result else {
            return None;
        };
        let document = Document::of(answer).filter(|_| means == Meaning::Done)?;
        let part = document.value.pointer(pointer)?;
        let mut block = Writer::object();
        block.str("type", "text").str("text", &as_text(part));
        let mut result = Writer::object();
        result.raw("content", &format!("[{}]", block.end()));
        if part.is_object() {
            result.raw("structuredContent", &part.to_string());
        }
        RawValue::from_string(result.end()).ok()
    }
}

/// Returns a result with the job's id in `_meta`, and with `isError` if the job did not succeed.
pub fn marked(result: &RawValue, id: &str, means: Meaning) -> Box<RawValue> {
    let mut marked = result.get().to_owned();
    if means != Meaning::Done {
        marked = set(&marked, "isError", "true").unwrap_or(marked);
    }
    let members = Object::parse(result.get()).unwrap_or_default();
    // A `_meta` that is no object has no place for a member.
    let meta = members.get("_meta").filter(|meta| is_object(meta));
    let meta = set(meta.map_or("{}", RawValue::get), JOB, id);
    if let Ok(meta) = meta {
        marked = set(&marked, "_meta", &meta).unwrap_or(marked);
    }
    RawValue::from_string(marked).unwrap_or_else(|_| result.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jobs::job_call::HelperFacts;
    use crate::jobs::words::{Acceptor, WordTest};

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn answer(structured: &Value) -> Box<RawValue> {
        raw(&json!({"content": [], "structuredContent": structured}))
    }

    fn read(rule: &JobRule, structured: &Value) -> JobReading {
        rule.read(&Document::of(&answer(structured)).unwrap())
    }

    #[test]
    fn the_state_is_under_one_of_two_names_and_unknown_words_are_no_end() {
        let rule = JobRule::default();
        let meaning = |answer: Value| read(&rule, &answer).meaning;
        assert_eq!(
            meaning(json!({"status": "RUNNING"})),
            Some(Meaning::Working)
        );
        assert_eq!(
            meaning(json!({"state": "JobState.DONE"})),
            Some(Meaning::Done)
        );
        // An answer without a state says nothing of the job.
        for without in [
            json!({"status": {"phase": "done"}}),
            json!({"error": "no room"}),
        ] {
            assert_eq!(meaning(without), Some(Meaning::Retry));
        }
        let unknown = read(&rule, &json!({"status": "stopped"}));
        assert_eq!(
            (unknown.meaning, unknown.unknown.as_deref()),
            (None, Some("stopped"))
        );
    }

    #[test]
    fn the_success_of_a_start_is_not_that_of_its_job() {
        let start = |rule: JobRule, structured: Value| {
            let call = JobCall {
                key: None,
                rule: std::sync::Arc::new(rule),
                status: HelperFacts::default(),
                result: HelperFacts::default(),
                cancel: HelperFacts::default(),
            };
            call.start_answer(&answer(&structured), "{}")
        };
        let begun = |word: &str| start(JobRule::default(), json!({"id": "a", "status": word}));
        assert!(matches!(begun("success"), StartAnswer::Begun(_)));
        assert!(matches!(begun("QUEUED"), StartAnswer::Begun(_)));
        assert_eq!(begun("completed"), StartAnswer::Answer);
        let sentences = JobRule {
            state: Some(JobSource::Text("(completed)".into())),
            ..JobRule::default()
        };
        let begun = start(sentences, json!({"id": "a", "status": "completed"}));
        assert!(matches!(begun, StartAnswer::Begun(_)));
    }

    #[test]
    fn an_outcome_is_read_once_the_job_has_ended() {
        let rule = JobRule {
            outcome: Some(JobSource::Pointer("/conclusion".into())),
            ..JobRule::default()
        };
        let meaning = |answer: Value| read(&rule, &answer).meaning;
        let working = json!({"status": "in_progress", "conclusion": "failure"});
        assert_eq!(meaning(working), Some(Meaning::Working));
        let failed = json!({"status": "completed", "conclusion": "failure"});
        assert_eq!(meaning(failed), Some(Meaning::Failed));
        let unclear = json!({"status": "completed", "conclusion": "neutral"});
        assert_eq!(meaning(unclear), Some(Meaning::Done));
    }

    #[test]
    fn an_error_is_a_failed_check_unless_a_condition_says_more() {
        let mut rule = JobRule::default();
        let failed = raw(&json!({
            "content": [{"type": "text", "text": "job not found"}], "isError": true,
            "structuredContent": {"status": "failed"},
        }));
        let meaning = |rule: &JobRule| rule.read(&Document::of(&failed).unwrap()).meaning;
        assert_eq!(meaning(&rule), Some(Meaning::Retry));
        let error = raw(&json!({"code": -32602, "message": "Job not found"}));
        let of_error = |rule: &JobRule| rule.read(&Document::of_error(&error)).meaning;
        assert_eq!(of_error(&rule), Some(Meaning::Retry));
        rule.acceptors.push(Acceptor {
            place: None,
            test: WordTest::Matches("(?i)not found".into()),
            means: Meaning::Gone,
        });
        assert_eq!(meaning(&rule), Some(Meaning::Gone));
        assert_eq!(of_error(&rule), Some(Meaning::Gone));
    }

    #[test]
    fn progress_and_the_next_check_are_where_the_rule_says() {
        let mut rule = JobRule {
            progress: Some("/done".into()),
            total: Some("/of".into()),
            message: Some("/step".into()),
            ..JobRule::default()
        };
        rule.poll.from = Some(("/wait".into(), PollUnit::Milliseconds));
        let seen = |answer: Value| {
            let read = read(&rule, &answer);
            (read.progress, read.poll.map(|poll| poll.as_millis()))
        };
        let all = json!({"done": "45%", "of": 100, "step": "b\"c", "wait": 1500});
        let shown = r#"{"progress":45,"total":100,"message":"b\"c"}"#.to_owned();
        assert_eq!(seen(all), (shown, Some(1500)));
        for (wait, poll) in [
            (json!(-1), None),
            (json!(1e300), None),
            (json!(1), Some(500)),
        ] {
            assert_eq!(seen(json!({"wait": wait})), ("{}".to_owned(), poll));
        }
        assert_eq!(seen(json!({"done": "half", "wait": 1e9})).1, Some(300_000));
    }

    #[test]
    fn a_result_has_the_id_and_a_failure_is_an_error() {
        let part = JobRule {
            result: JobResult::Pointer("/video".into()),
            ..JobRule::default()
        };
        let last = answer(&json!({"video": {"url": "u"}}));
        let of = |rule: &JobRule, means| {
            let result = rule.result_of(means, &last, "\"j\"");
            serde_json::from_str::<Value>(result.get()).unwrap()
        };
        let done = of(&part, Meaning::Done);
        assert_eq!(done["structuredContent"], json!({"url": "u"}));
        assert_eq!(done["content"][0]["text"], r#"{"url":"u"}"#);
        assert_eq!(done["_meta"]["io.raincheck/job"], "j");
        let failed = of(&part, Meaning::Failed);
        assert_eq!(failed["structuredContent"], json!({"video": {"url": "u"}}));
        assert_eq!(failed["isError"], true);
        let all = of(&JobRule::default(), Meaning::Done);
        assert_eq!(all["structuredContent"], json!({"video": {"url": "u"}}));
        assert!(all.get("isError").is_none());
        for odd in ["null", "7", "\"x\""] {
            let odd = RawValue::from_string(format!(r#"{{"_meta":{odd}}}"#)).unwrap();
            let marked = marked(&odd, "\"j\"", Meaning::Failed);
            let wanted = json!({"isError": true, "_meta": {"io.raincheck/job": "j"}});
            assert_eq!(serde_json::from_str::<Value>(marked.get()).unwrap(), wanted);
        }
    }
}
