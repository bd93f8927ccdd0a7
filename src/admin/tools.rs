//! The tools that operators pause.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::tasks::TaskActionError;
use crate::base::printable::{is_printable, one_line};
use crate::base::utc::rfc3339;
use crate::runner::Runner;
use crate::runner::pauses::PauseError;
use crate::task::glob::Glob;
use crate::task::pauses::{DURATION_MS_MAX, Pause, Pauses, REASON_MAX};
use crate::task::tool_pattern::ToolPattern;
use crate::telemetry::tool::is_known;

/// The longest name or glob of a pause, in characters.
const TOOLS_MAX: usize = 200;

/// The tools of the server, as operators pause them.
#[derive(Debug)]
pub(super) struct OperatorTools {
    /// The runner of the parts that serve now.
    runner: watch::Receiver<Arc<Runner>>,
}

/// The body of a request to pause tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct PauseRequest {
    tools: String,
    seconds: u64,
    #[serde(default)]
    reason: String,
}

/// The body of a request to end a pause.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ResumeRequest {
    tools: String,
}

impl From<PauseError> for TaskActionError {
    fn from(error: PauseError) -> Self {
        match error {
            PauseError::TooMany | PauseError::NotPaused(_) => Self::Conflict(error.to_string()),
            PauseError::Store(error) => error.into(),
        }
    }
}

impl OperatorTools {
    pub(super) fn new(runner: watch::Receiver<Arc<Runner>>) -> Self {
        Self { runner }
    }

    /// The pauses that are in force.
    pub(super) fn paused(&self) -> Vec<Value> {
        let runner = self.runner();
        listed(&runner.pauses(), runner.ledger().now_ms())
    }

    /// The answer to `GET /tools`.
    pub(super) fn list(&self) -> Value {
        json!({ "paused": self.paused() })
    }

    /// Pauses tools on every replica. `by`: the name of the operator.
    pub(super) async fn pause(
        &self,
        body: &[u8],
        by: Option<&str>,
    ) -> Result<Pause, TaskActionError> {
        let runner = self.runner();
        let asked = PauseRequest::read(body).map_err(TaskActionError::Wrong)?;
        let now_ms = runner.ledger().now_ms();
        let pause = Pause {
            tools: asked.tools.into(),
            since_ms: now_ms,
            until_ms: now_ms.saturating_add(asked.seconds.saturating_mul(1000)),
            reason: asked.reason.into(),
            by: by.unwrap_or_default().into(),
        };
        runner.pause_tools(&pause).await?;
        Ok(pause)
    }

    /// Ends a pause on every replica. Returns the tools.
    pub(super) async fn resume(&self, body: &[u8]) -> Result<String, TaskActionError> {
        const FORM: &str = r#"the body must be {"tools": "build_*"}"#;
        let asked: ResumeRequest = serde_json::from_slice(body)
            .map_err(|error| TaskActionError::Wrong(format!("{FORM}: {error}")))?;
        self.runner().resume_tools(&asked.tools).await?;
        Ok(asked.tools)
    }

    fn runner(&self) -> Arc<Runner> {
        Arc::clone(&self.runner.borrow())
    }
}

impl PauseRequest {
    /// Reads a body. An error is a sentence for the operator.
    fn read(body: &[u8]) -> Result<Self, String> {
        const FORM: &str =
            r#"the body must be {"tools": "build_*", "seconds": 1800, "reason": "..."}"#;
        let mut asked: Self =
            serde_json::from_slice(body).map_err(|error| format!("{FORM}: {error}"))?;
        // Clients and terminals show the reason in a sentence.
        asked.reason = one_line(&asked.reason);
        let is_short = (1..=TOOLS_MAX).contains(&asked.tools.chars().count());
        if !is_short || !asked.tools.chars().all(is_printable) {
            return Err(format!(
                "name a tool, or a glob of tools, of at most {TOOLS_MAX} characters that can be seen"
            ));
        }
        if let Err(error) = Glob::parse(&asked.tools) {
            let tools = &asked.tools;
            return Err(format!(
                "{tools} is no glob: {error}; \\ before a character means itself"
            ));
        }
        let longest = DURATION_MS_MAX / 1000;
        if !(1..=longest).contains(&asked.seconds) {
            return Err("a pause lasts between one second and 30 days".to_owned());
        }
        if asked.reason.chars().count() > REASON_MAX {
            return Err(format!("the reason has more than {REASON_MAX} characters"));
        }
        Ok(asked)
    }
}

fn listed(pauses: &Pauses, now_ms: u64) -> Vec<Value> {
    let listed = pauses.iter().map(|pause| {
        json!({
            "tools": &*pause.tools,
            "since": rfc3339(pause.since_ms),
            "until": rfc3339(pause.until_ms),
            "seconds_left": pause.until_ms.saturating_sub(now_ms).div_ceil(1000),
            "reason": &*pause.reason,
            "by": &*pause.by,
            "known": is_known(|tool| ToolPattern::of(&pause.tools).is_match(tool)),
        })
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_a_pause_has_its_bounds() {
        let read = |body: &str| PauseRequest::read(body.as_bytes());
        let good =
            read(r#"{"tools":"build_*","seconds":60,"reason":" new\n \u001bdisk "}"#).unwrap();
        assert_eq!(
            (&*good.tools, good.seconds, &*good.reason),
            ("build_*", 60, "new disk")
        );
        assert_eq!(read(r#"{"tools":"x","seconds":1}"#).unwrap().reason, "");
        let long = "x".repeat(201);
        for (body, why) in [
            ("{", "the body must be"),
            (r#"{"tools":"x","seconds":60,"until":"x"}"#, "unknown field"),
            ("[]", "expected an object"),
            (r#"{"tools":"","seconds":60}"#, "name a tool"),
            (r#"{"tools":"x\u0007","seconds":60}"#, "name a tool"),
            (
                &format!(r#"{{"tools":"{long}","seconds":60}}"#),
                "name a tool",
            ),
            (r#"{"tools":"x{a,b","seconds":60}"#, "is no glob: unclosed"),
            (r#"{"tools":"x","seconds":0}"#, "30 days"),
            (r#"{"tools":"x","seconds":2592001}"#, "30 days"),
            (
                &format!(r#"{{"tools":"x","seconds":1,"reason":"{long}"}}"#),
                "more than 200",
            ),
        ] {
            let refused = read(body).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn the_list_has_what_is_left() {
        let pause = Pause {
            tools: "x".into(),
            since_ms: 0,
            until_ms: 90_500,
            reason: "".into(),
            by: "ada".into(),
        };
        let pauses = Pauses::default().with(pause).unwrap();
        let list = listed(&pauses, 500);
        assert_eq!(list[0]["seconds_left"], 90);
        assert_eq!(list[0]["until"], "1970-01-01T00:01:30.500Z");
        assert_eq!(list[0]["by"], "ada");
    }
}
