//! The progress of a server's task, as its state shows it.

use serde_json::value::RawValue;

use crate::mcp::json::{Object, Writer, prepend};

/// The progress that a state shows.
#[derive(Debug, Default)]
pub(super) struct ShownProgress {
    /// Members of `notifications/progress`. An object.
    members: String,
    has_number: bool,
}

/// The progress that the last state of a task showed.
#[derive(Default)]
pub(super) struct StatusMessage {
    last: Option<String>,
    changes: u64,
}

/// The member of `_meta` that has the progress of a task of raincheck's: the server may be one.
const PROGRESS: &str = "io.raincheck/progress";

impl ShownProgress {
    /// The progress in these members of `notifications/progress`, an object.
    pub(super) fn of(members: String) -> Self {
        let has_number = Object::parse(&members).is_ok_and(|it| it.contains("progress"));
        Self {
            members,
            has_number,
        }
    }

    /// The progress in the state of a task of MCP's own.
    pub(super) fn of_task(task: &Object<'_>) -> Self {
        let meta = task.get_object("_meta").unwrap_or_default();
        let numbers = meta.get_object(PROGRESS).unwrap_or_default();
        let mut shown = Writer::object();
        for key in ["progress", "total"] {
            if let Some(number) = numbers.get(key) {
                shown.raw(key, number.get());
            }
        }
        if let Some(message) = task.get_str("statusMessage") {
            shown.str("message", &message);
        }
        Self {
            members: shown.end(),
            has_number: numbers.contains("progress"),
        }
    }
}

impl StatusMessage {
    /// Returns the `params` of a `notifications/progress` if the state shows another progress than the last one. Without numbers
    /// of the server's own, the changes are counted.
    pub(super) fn progress(&mut self, shown: ShownProgress) -> Option<Box<RawValue>> {
        let ShownProgress {
            members,
            has_number,
        } = shown;
        let is_empty = members.is_empty() || members == "{}";
        if is_empty || self.last.as_deref() == Some(&*members) {
            return None;
        }
        self.changes += 1;
        // A placeholder: the client's own token replaces it (`tell_progress`).
        let mut params = prepend(&members, "progressToken", "0");
        if !has_number {
            params = prepend(&params, "progress", &self.changes.to_string());
        }
        self.last = Some(members);
        RawValue::from_string(params).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_the_servers_own_numbers_or_counts_its_words() {
        let mut seen = StatusMessage::default();
        let mut told = |state: &str| {
            let progress = seen.progress(ShownProgress::of_task(&Object::parse(state).unwrap()));
            progress.map(|params| params.get().to_owned())
        };
        let words = r#"{"statusMessage":"a"}"#;
        let counted = r#"{"progress":1,"progressToken":0,"message":"a"}"#;
        assert_eq!(told(words).as_deref(), Some(counted));
        assert_eq!(told(words), None);
        let own = r#"{"_meta":{"io.raincheck/progress":{"progress":0.5,"total":4}}}"#;
        let passed = r#"{"progressToken":0,"progress":0.5,"total":4}"#;
        assert_eq!(told(own).as_deref(), Some(passed));
        assert_eq!(told("{}"), None);
    }
}
