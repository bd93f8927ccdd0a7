//! What operators do about failures: acknowledge them, and run their calls again.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Done, OperatorTasks, TaskActionError, summary};
use crate::base::printable::one_line;
use crate::runner::rerun::RerunError;
use crate::store::history::AcknowledgeError;
use crate::task::history::{Acknowledged, BY_MAX, EndedTask, NOTE_MAX};
use crate::task::id::TaskId;

/// The body of a request to acknowledge a failure.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AckRequest {
    note: String,
    by: String,
}

/// The body of a request to run a call again.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RerunRequest {
    may_run_twice: bool,
    by: String,
}

impl From<AcknowledgeError> for TaskActionError {
    fn from(error: AcknowledgeError) -> Self {
        match error {
            AcknowledgeError::TooMany => Self::Conflict(error.to_string()),
            AcknowledgeError::Store(error) => error.into(),
        }
    }
}

impl From<RerunError> for TaskActionError {
    fn from(error: RerunError) -> Self {
        match error {
            RerunError::Store(error) => error.into(),
            RerunError::MayRunTwice => Self::Conflict(format!(
                "{error}: say that it may run twice (--may-run-twice, or \"may_run_twice\": true)"
            )),
            RerunError::Open(_)
            | RerunError::NoRequest
            | RerunError::Personal
            | RerunError::NotBegun(_) => Self::Conflict(error.to_string()),
        }
    }
}

impl OperatorTasks {
    /// Notes that somebody has looked at a failure. `body`: an object, which may have a note and a name. `operator`: the name of
    /// the operator's token, which counts before the name of the body.
    pub(in crate::admin) async fn acknowledge(
        &self,
        id: &str,
        body: &Bytes,
        operator: Option<&str>,
    ) -> Result<Done, TaskActionError> {
        let asked = AckRequest::read(body).map_err(TaskActionError::Wrong)?;
        let asked = AckRequest {
            by: operator.map_or(asked.by, str::to_owned),
            ..asked
        };
        let id = self.id_of(id).await?;
        let ended = self.failure(id).await?;
        self.note(&ended, asked).await?;
        let acks = self.acks(std::iter::once(&ended)).await?;
        Ok(Done {
            tasks: vec![id],
            answer: summary::ended_line(&ended, acks.get(&id)),
        })
    }

    /// Begins the call of a task that has ended once more, and acknowledges its failure. `body`: an object, which may say that
    /// the tool may run twice.
    pub(in crate::admin) async fn run_again(
        &self,
        id: &str,
        body: &Bytes,
        operator: Option<&str>,
    ) -> Result<Done, TaskActionError> {
        const FORM: &str = r#"{"may_run_twice": true, "by": "..."}"#;
        let asked: RerunRequest = read(body, FORM).map_err(TaskActionError::Wrong)?;
        let by = text("name", &asked.by, BY_MAX).map_err(TaskActionError::Wrong)?;
        let by = operator.map_or(by, str::to_owned);
        let id = self.id_of(id).await?;
        let runner = self.runner();
        let Some(loaded) = runner.ledger().load(id).await? else {
            // Found, but without what it takes.
            self.ended_like(&id.to_string())
                .await?
                .first()
                .ok_or(TaskActionError::Unknown)?;
            let why = "its arguments are gone with its record: they are kept for tasks.retention after the end";
            return Err(TaskActionError::Conflict(why.into()));
        };
        let begun = runner.run_again(&loaded.task, asked.may_run_twice).await?;
        // The call runs, and its failure can be acknowledged later.
        let _ = self.note_rerun(id, begun, by).await;
        Ok(Done {
            tasks: vec![id, begun],
            answer: json!({ "id": begun.to_string(), "rerun_of": id.to_string() }),
        })
    }

    /// Acknowledges the failure of a call that runs again. What somebody found before stays, and who it was.
    async fn note_rerun(
        &self,
        id: TaskId,
        begun: TaskId,
        by: String,
    ) -> Result<(), TaskActionError> {
        const AGAIN: &str = "run again as";
        let ended = self.failure(id).await?;
        let acks = self.acks(std::iter::once(&ended)).await?;
        let (before, first_by) = acks.get(&id).map_or(("", ""), |ack| (&*ack.note, &*ack.by));
        let found = before.split(AGAIN).next().unwrap_or_default();
        let found = found.trim_end_matches("; ");
        // The name of the acknowledgement is that of who looked first; another one who runs the call again is in the note.
        let (by, again_by) = match first_by {
            "" => (by, String::new()),
            first_by if first_by == by || by.is_empty() => (first_by.to_owned(), String::new()),
            first_by => (first_by.to_owned(), format!(" by {by}")),
        };
        let note = if found.is_empty() {
            format!("{AGAIN} {begun}{again_by}")
        } else {
            format!("{found}; {AGAIN} {begun}{again_by}")
        };
        self.note(&ended, AckRequest { note, by }).await
    }

    /// The entry of a task that has failed.
    async fn failure(&self, id: TaskId) -> Result<EndedTask<'static>, TaskActionError> {
        let runner = self.runner();
        if !self.has_history() {
            let why = "no history is kept (history.keep), and so no failure is acknowledged";
            return Err(TaskActionError::Conflict(why.into()));
        }
        let not_failed =
            |state: &str| TaskActionError::Conflict(format!("the task has not failed: {state}"));
        let mut ended = self.ended_like(&id.to_string()).await?;
        let Some(ended) = ended.pop() else {
            let found = runner.ledger().load(id).await?;
            let task = found.ok_or(TaskActionError::Unknown)?.task;
            let state = task.status().word();
            return Err(if state == "failed" {
                let why = "the history does not have it: a replica that keeps none, or an earlier version, ended it";
                TaskActionError::Conflict(why.into())
            } else {
                not_failed(state)
            });
        };
        if !ended.group.is_failure() {
            return Err(not_failed(&ended.group.outcome));
        }
        Ok(ended)
    }

    async fn note(&self, ended: &EndedTask<'_>, asked: AckRequest) -> Result<(), TaskActionError> {
        let ack = Acknowledged {
            id: ended.id,
            ended_ms: ended.times.ended_ms,
            at_ms: self.now_ms(),
            by: asked.by.into(),
            note: asked.note.into(),
        };
        Ok(self.runner().acknowledge(ack).await?)
    }
}

impl AckRequest {
    /// Reads a body. An error is a sentence for the operator.
    fn read(body: &[u8]) -> Result<Self, String> {
        let asked: Self = read(body, r#"{"note": "...", "by": "..."}"#)?;
        Ok(Self {
            note: text("note", &asked.note, NOTE_MAX)?,
            by: text("name", &asked.by, BY_MAX)?,
        })
    }
}

/// Reads a body, which may be empty.
fn read<T: Default + DeserializeOwned>(body: &[u8], form: &str) -> Result<T, String> {
    if body.is_empty() {
        return Ok(T::default());
    }
    // As an object first: a list would be read as one without names.
    let object = serde_json::from_slice::<Map<String, Value>>(body);
    let object = object.map_err(|_| format!("the body must be {form}"))?;
    T::deserialize(Value::Object(object))
        .map_err(|error| format!("the body must be {form}: {error}"))
}

/// A text that terminals show.
fn text(what: &str, text: &str, most: usize) -> Result<String, String> {
    let text = one_line(text);
    if text.chars().count() > most {
        return Err(format!("the {what} has more than {most} characters"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_a_line_of_bounded_length() {
        let read = |body: &str| AckRequest::read(body.as_bytes());
        assert_eq!(read(""), Ok(AckRequest::default()));
        let asked = read(r#"{"note":" it\n ran \u001b twice ","by":"ada"}"#).unwrap();
        assert_eq!((&*asked.note, &*asked.by), ("it ran twice", "ada"));
        let long = format!(r#"{{"note":"{}"}}"#, "x".repeat(NOTE_MAX + 1));
        assert!(
            read(&long)
                .unwrap_err()
                .starts_with("the note has more than")
        );
        for wrong in ["[]", r#"{"nte":""}"#] {
            assert!(read(wrong).unwrap_err().starts_with("the body must be {"));
        }
    }
}
