//! Turns `[[jobs]]` into the rules for job tools.

use std::sync::Arc;
use std::time::Duration;

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::file_jobs::{Job, WrittenAcceptor, WrittenPolls};
use super::presets;
use super::problem::Problem;
use crate::jobs::document::JobSource;
use crate::jobs::words::{Acceptor, JobWords, Meaning, WordTest};
use crate::jobs::{Helper, JobPolls, JobResult, JobRule, PollUnit};
use crate::task::glob::Glob;
use crate::task::job_rules::{JobRules, JobStart};

/// The shortest time between two checks of a job.
const POLL_MIN: Duration = Duration::from_millis(500);

pub(super) fn jobs(written: Vec<Job>) -> Result<JobRules, Problem> {
    let mut rules = Vec::new();
    for (place, job) in written.into_iter().enumerate() {
        let at = Entry(format!("jobs.{place}"));
        let name = match &job.preset {
            Some(preset) => format!("[[jobs]] #{} ({preset})", place + 1),
            None => format!("[[jobs]] #{}", place + 1),
        };
        let entries = presets::entries(job).map_err(|(setting, text)| at.refused(setting, text))?;
        for job in entries {
            rules.push(entry(&at, &name, job)?);
        }
    }
    Ok(JobRules::new(rules))
}

/// An entry, as errors name it.
struct Entry(String);

impl Entry {
    fn refused(&self, setting: &str, text: impl Into<String>) -> Problem {
        Problem::new(format!("{}.{setting}", self.0), text.into())
    }

    fn pointer(&self, setting: &str, text: &str) -> Result<Box<str>, Problem> {
        if text.starts_with('/') {
            return Ok(text.into());
        }
        let text =
            format!("{text:?} is not a pointer into JSON; write \"/status\" or \"/data/status\"");
        Err(self.refused(setting, text))
    }

    fn optional_pointer(
        &self,
        setting: &str,
        text: Option<String>,
    ) -> Result<Option<Box<str>>, Problem> {
        text.map(|text| self.pointer(setting, &text)).transpose()
    }

    fn pattern(&self, setting: &str, text: &str) -> Result<Box<str>, Problem> {
        Regex::new(text)
            .map(|_| text.into())
            .map_err(|error| self.refused(setting, format!("{text:?} is not a pattern: {error}")))
    }

    /// Reads a place in an answer: a pointer, `{ text = PATTERN }` or `{ argument = NAME }`.
    fn source(&self, setting: &str, written: Option<Value>) -> Result<Option<JobSource>, Problem> {
        let Some(written) = written else {
            return Ok(None);
        };
        let refused = || {
            let text = r#"is no place in an answer; write "/pointer", { text = 'PATTERN' } or, for the id, { argument = "NAME" }"#;
            self.refused(setting, text)
        };
        if let Value::String(text) = &written {
            return self
                .pointer(setting, text)
                .map(|at| Some(JobSource::Pointer(at)));
        }
        let members = written.as_object().filter(|members| members.len() == 1);
        let (key, text) = members
            .and_then(|members| members.iter().next())
            .and_then(|(key, value)| Some((&**key, value.as_str()?)))
            .ok_or_else(refused)?;
        let source = match key {
            "text" => JobSource::Text(self.pattern(setting, text)?),
            "argument" if setting == "id" => JobSource::Argument(text.into()),
            _ => return Err(refused()),
        };
        Ok(Some(source))
    }

    /// Reads a tool: its name, or `{ tool = NAME, arguments = { .. } }`.
    fn helper(&self, setting: &str, written: Option<Value>) -> Result<Option<Helper>, Problem> {
        let Some(written) = written else {
            return Ok(None);
        };
        let (tool, arguments) = match written {
            Value::String(name) => (Some(name.into()), None),
            Value::Object(mut members) => {
                let tool = members.remove("tool");
                let arguments = members.remove("arguments");
                // A misspelt member must not be without effect.
                (tool.filter(|_| members.is_empty()), arguments)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => (None, None),
        };
        let helper = match (tool, arguments.unwrap_or_else(|| Map::new().into())) {
            (Some(Value::String(name)), Value::Object(arguments)) => Helper {
                tool: name.into(),
                arguments,
            },
            _ => return Err(self.no_tool(setting)),
        };
        if helper.tool.trim().is_empty() {
            return Err(self.no_tool(setting));
        }
        Ok(Some(helper))
    }

    fn no_tool(&self, setting: &str) -> Problem {
        let text =
            r#"names no tool; write "NAME" or { tool = "NAME", arguments = { job = "{id}" } }"#;
        self.refused(setting, text)
    }

    fn start(&self, place: &str, written: Option<Value>, hides: bool) -> Result<JobStart, Problem> {
        let missing = r#"not set; name the tool that starts jobs: start = "start_export""#;
        let (names, arguments) = match written {
            None => return Err(self.refused("start", missing)),
            Some(Value::Array(names)) => (names, Map::new()),
            other => {
                let helper = self.helper("start", other)?;
                let helper = helper.ok_or_else(|| self.refused("start", missing))?;
                (vec![Value::from(&*helper.tool)], helper.arguments)
            }
        };
        let globs = names.iter().map(|name| {
            let name = name.as_str().unwrap_or_default();
            Glob::parse(name)
                .map_err(|error| self.refused("start", format!("{name:?} is not a glob: {error}")))
        });
        let globs = globs.collect::<Result<Vec<_>, _>>()?;
        if globs.is_empty() {
            return Err(self.refused("start", missing));
        }
        Ok(JobStart {
            place: place.into(),
            globs,
            arguments,
            hides,
        })
    }

    fn acceptor(&self, written: WrittenAcceptor) -> Result<Acceptor, Problem> {
        let test = match (written.equals, written.matches) {
            (Some(word), None) => WordTest::Equals(word.into()),
            (None, Some(pattern)) => WordTest::Matches(self.pattern("match.matches", &pattern)?),
            _ => return Err(self.refused("match", "needs either equals or matches")),
        };
        let means = written
            .means
            .ok_or_else(|| self.refused("match", r#"needs means, such as "failed" or "retry""#))?;
        // All of the text.
        let place = written.place.filter(|place| place.as_str() != Some("text"));
        Ok(Acceptor {
            place: self.source("match.where", place)?,
            test,
            means,
        })
    }

    fn polls(&self, written: WrittenPolls) -> Result<JobPolls, Problem> {
        let usual = JobPolls::default();
        let from = self.optional_pointer("poll.from", written.from)?;
        let unit = written.unit.unwrap_or(PollUnit::Seconds);
        let polls = JobPolls {
            first: written.first.unwrap_or(usual.first),
            max: written.max.unwrap_or(usual.max),
            from: from.map(|from| (from, unit)),
            lost_after: written.lost_after.unwrap_or(usual.lost_after),
        };
        if polls.first < POLL_MIN || polls.max < polls.first {
            let text = "must be from \"500ms\" up, and max not shorter than first";
            return Err(self.refused("poll", text));
        }
        if polls.lost_after <= polls.max {
            let text = "is not longer than poll.max: a job would be lost by one check that fails";
            return Err(self.refused("poll.lost_after", text));
        }
        Ok(polls)
    }
}

/// Refuses a part of the last status where there is none yet.
fn without_status(at: &Entry, setting: &str, helper: &Helper) -> Result<(), Problem> {
    let mut templates = helper.arguments.values();
    if templates.any(|template| template.to_string().contains("{status:")) {
        let text = "{status:..} is known to result only; write {id} or {start:NAME}";
        return Err(at.refused(setting, text));
    }
    Ok(())
}

fn entry(at: &Entry, place: &str, job: Job) -> Result<(JobStart, Arc<JobRule>), Problem> {
    let start = at.start(place, job.start, job.hide)?;
    let set = match job.set {
        None => Map::new(),
        Some(Value::Object(members)) => members,
        Some(_) => {
            let text = "is no table; write set = { wait = false }";
            return Err(at.refused("set", text));
        }
    };
    let key = job.key.map(String::into_boxed_str);
    if key.as_ref().is_some_and(|key| key.trim().is_empty()) {
        return Err(at.refused("key", r#"names no argument; write key = "request_token""#));
    }
    if key.as_ref().is_some_and(|key| set.contains_key(&**key)) {
        return Err(at.refused(
            "key",
            "is an argument of set, too: each call has a key of its own",
        ));
    }
    let status = at.helper("status", job.status)?.ok_or_else(|| {
        let text = r#"not set; name the tool that reports on a job: status = "get_export""#;
        at.refused("status", text)
    })?;
    without_status(at, "status", &status)?;
    let cancel = at.helper("cancel", job.cancel)?;
    if let Some(cancel) = &cancel {
        without_status(at, "cancel", cancel)?;
    }
    let result = match job.result {
        None => JobResult::Status,
        Some(Value::String(text)) if text == "status" => JobResult::Status,
        Some(Value::String(text)) if text.starts_with('/') => JobResult::Pointer(text.into()),
        other => at
            .helper("result", other)?
            .map_or(JobResult::Status, JobResult::Tool),
    };
    let words = [
        (job.working, Meaning::Working),
        (job.done, Meaning::Done),
        (job.failed, Meaning::Failed),
        (job.cancelled, Meaning::Cancelled),
        (job.input, Meaning::Input),
        (job.retry, Meaning::Retry),
        (job.gone, Meaning::Gone),
    ];
    let words = words
        .into_iter()
        .flat_map(|(words, means)| words.into_iter().map(move |word| (word, means)));
    let acceptors = job.acceptors.into_iter().map(|it| at.acceptor(it));
    let rule = JobRule {
        set,
        key,
        id: at.source("id", job.id)?,
        status,
        state: at.source("state", job.state)?,
        outcome: at.source("outcome", job.outcome)?,
        words: JobWords::new(words),
        acceptors: acceptors.collect::<Result<_, _>>()?,
        progress: at.optional_pointer("progress", job.progress)?,
        total: at.optional_pointer("total", job.total)?,
        message: at.optional_pointer("message", job.message)?,
        result,
        cancel,
        poll: at.polls(job.poll)?,
        lives: job.lives,
    };
    Ok((start, Arc::new(rule)))
}

#[cfg(test)]
mod tests {
    use figment::providers::{Format as _, Toml};

    use super::*;

    fn read(text: &str) -> Result<JobRules, String> {
        let written: Vec<Job> = figment::Figment::from(Toml::string(text))
            .extract_inner("jobs")
            .map_err(|error| error.to_string())?;
        jobs(written).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn two_lines_suffice() {
        let rules = read("[[jobs]]\nstart = \"agent\"\nstatus = \"agent_status\"").unwrap();
        let rule = rules.rule("agent", None).unwrap();
        assert_eq!(&*rule.status.tool, "agent_status");
        assert_eq!(rule.result, JobResult::Status);
        assert!(rules.rule("agent_status", None).is_none());
    }

    #[test]
    fn the_long_forms_are_read() {
        let text = r#"
            [[jobs]]
            start = { tool = "video", arguments = { action = "create" } }
            set = { async_mode = true, n = 0 }
            id = { text = 'Task ID: (\S+?)\.' }
            status = { tool = "video", arguments = { action = "get", id = "{id}" } }
            state = { text = '(Success|FAILED)' }
            failed = "FAILED"
            retry = ["Failed to query"]
            match = [{ where = "text", matches = "not found", means = "gone" }]
            result = "/video/url"
            poll = { first = "10s", max = "20s", from = "/retryAfter", unit = "ms" }
            lives = "process"
        "#;
        let rules = read(text).unwrap();
        let create = serde_json::json!({"action": "create", "prompt": "x"});
        assert!(rules.rule("video", create.as_object()).is_some());
        let get = serde_json::json!({"action": "get"});
        assert!(rules.rule("video", get.as_object()).is_none());
    }

    #[test]
    fn what_is_wrong_is_refused_with_what_to_write() {
        for (entry, part) in [
            ("status = \"b\"", "start"),
            ("start = \"a\"", "status"),
            ("start = \"a\"\nstatus = \"b\"\nid = \"job\"", "pointer"),
            (
                "start = \"a\"\nstatus = \"b\"\nstate = { text = '(' }",
                "pattern",
            ),
            (
                "start = \"a\"\nstatus = \"b\"\nstate = { argument = 'x' }",
                "no place",
            ),
            ("start = \"a\"\nstatus = { name = \"b\" }", "names no tool"),
            (
                "start = \"a\"\nstatus = { tool = \"b\", arguments = { x = \"{status:/x}\" } }",
                "result only",
            ),
            ("start = \"a\"\nstatus = \"b\"\nset = \"c\"", "no table"),
            ("start = \"a\"\nstatus = \"b\"\nkey = \"\"", "no argument"),
            (
                "start = \"a\"\nstatus = \"b\"\nmatch = [{ equals = \"x\" }]",
                "means",
            ),
            (
                "start = \"a\"\nstatus = \"b\"\npoll = { first = \"1ms\" }",
                "500ms",
            ),
            ("start = \"a\"\nstatus = \"b\"\nprogres = \"/p\"", "progres"),
        ] {
            let error = read(&format!("[[jobs]]\n{entry}")).unwrap_err();
            assert!(error.contains(part), "{entry}: {error}");
        }
    }
}
