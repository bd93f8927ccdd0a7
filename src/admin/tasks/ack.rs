//! The body of a request to acknowledge a failure. Pure.

use serde::Deserialize;

use crate::base::printable::one_line;
use crate::task::history::{BY_MAX, NOTE_MAX};

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object")]
pub(super) struct AckRequest {
    pub(super) note: String,
    pub(super) by: String,
}

impl AckRequest {
    /// Reads a body, which may be empty. An error is a sentence for the operator.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        const FORM: &str = r#"the body must be {"note": "...", "by": "..."}"#;
        if body.is_empty() {
            return Ok(Self::default());
        }
        let asked: Self =
            serde_json::from_slice(body).map_err(|error| format!("{FORM}: {error}"))?;
        // Terminals show both.
        let (note, by) = (one_line(&asked.note), one_line(&asked.by));
        for (what, text, most) in [("note", &note, NOTE_MAX), ("name", &by, BY_MAX)] {
            if text.chars().count() > most {
                return Err(format!("the {what} has more than {most} characters"));
            }
        }
        Ok(Self { note, by })
    }
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
