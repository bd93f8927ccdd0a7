//! The party that cancelled a task, as records and the history keep it.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The party that cancelled a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CancelledBy {
    /// The client, by a request or a notification.
    Client,
    /// Nobody: the client went away before the task was announced to it.
    Departure,
    /// An operator, with the name of its token. `None`: the token has no name, or none was asked for.
    Operator(Option<Arc<str>>),
}

const CLIENT: &str = "client";
const DEPARTURE: &str = "departure";
const OPERATOR: &str = "operator";

impl CancelledBy {
    /// The party in one word, without the name.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Client => CLIENT,
            Self::Departure => DEPARTURE,
            Self::Operator(_) => OPERATOR,
        }
    }

    /// The name of the operator.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Client | Self::Departure => None,
            Self::Operator(name) => name.as_deref(),
        }
    }

    /// For `#[serde(deserialize_with)]`: what a later version may write and this one does not know is left out.
    pub fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Self>, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        Ok(match text.split_once(' ') {
            None => [Self::Client, Self::Departure, Self::Operator(None)]
                .into_iter()
                .find(|party| party.word() == text),
            Some((OPERATOR, name)) => Some(Self::Operator(Some(name.into()))),
            Some(_) => None,
        })
    }
}

impl Serialize for CancelledBy {
    /// Writes the word, and behind a space the name.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let word = self.word();
        match self.name() {
            Some(name) => to.collect_str(&format_args!("{word} {name}")),
            None => to.serialize_str(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Record {
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "CancelledBy::known"
        )]
        by: Option<CancelledBy>,
    }

    #[test]
    fn a_record_keeps_who_it_was_and_drops_who_is_unknown() {
        for (by, text) in [
            (None, "{}"),
            (Some(CancelledBy::Client), r#"{"by":"client"}"#),
            (Some(CancelledBy::Departure), r#"{"by":"departure"}"#),
            (Some(CancelledBy::Operator(None)), r#"{"by":"operator"}"#),
            (
                Some(CancelledBy::Operator(Some("Ada \"L\"".into()))),
                r#"{"by":"operator Ada \"L\""}"#,
            ),
        ] {
            let record = Record { by };
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
            assert_eq!(serde_json::from_str::<Record>(text).unwrap(), record);
        }
        for unknown in [r#"{"by":"rule"}"#, r#"{"by":"rule 7"}"#] {
            let read: Record = serde_json::from_str(unknown).unwrap();
            assert_eq!(read, Record { by: None });
        }
    }
}
