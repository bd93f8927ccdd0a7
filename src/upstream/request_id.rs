//! The ids of raincheck's requests at the server. They are the progress tokens, too.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::mcp::answer::{is_same_id, whole_number};
use crate::mcp::json::{quote, string};

/// The beginning of ids that no client has.
const PREFIX: &str = "raincheck/";

/// An id as JSON text: a number on a session of raincheck's, and a string on a client's own session, where the
/// client's ids are, too. The same id twice makes servers hang.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RequestId(Arc<str>);

impl RequestId {
    pub(super) fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// An id for use on a client's own session.
    pub(super) fn random() -> Self {
        Self(format!(r#""{PREFIX}{}""#, Uuid::new_v4()).into())
    }

    /// An id or a token that a server or a client wrote. A string may come back with other escapes.
    pub(super) fn read(json: &str) -> Self {
        Self(text(json).map_or_else(|| json.into(), |text| quote(&text).into()))
    }

    pub(super) fn as_json(&self) -> &str {
        &self.0
    }

    /// Returns `true` if that JSON is this id. A string may come back with other escapes, and a number as a string or
    /// with a fraction: both official SDKs read such an answer.
    pub(super) fn is(&self, json: &str) -> bool {
        *self.0 == *json || is_same_id(&self.0, json)
    }
}

/// Returns `true` if that JSON is an id or a token that some process made with [`RequestId::random`].
pub(super) fn is_beside_clients(json: &str) -> bool {
    text(json).is_some_and(|text| text.starts_with(PREFIX))
}

/// The number of an id that raincheck gave.
pub(super) fn number_of(json: &str) -> Option<u64> {
    // Nearly all servers send the number back as it was written, which needs no JSON parser.
    json.parse().ok().or_else(|| whole_number(json))
}

/// The value of a JSON string.
fn text(json: &str) -> Option<String> {
    if !json.starts_with('"') {
        return None;
    }
    let raw: &RawValue = serde_json::from_str(json).ok()?;
    string(raw).map(std::borrow::Cow::into_owned)
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(raw.get().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_however_it_is_written() {
        let id = RequestId::random();
        assert_ne!(id, RequestId::random());
        let escaped = id.as_json().replace('/', r"\/");
        assert!(id.is(id.as_json()) && id.is(&escaped));
        assert_eq!(RequestId::read(&escaped), id);
        assert!(is_beside_clients(&escaped));
        assert!(!id.is(r#""raincheck/1""#) && !id.is("7"));
        let number = RequestId::number(7);
        for same in ["7", r#""7""#, "7.0", "7e0", r#""\u0037""#] {
            assert!(number.is(same), "{same}");
            assert_eq!(number_of(same), Some(7), "{same}");
        }
        for other in [
            "8", "7.5", "-7", r#""7x""#, r#"" 7""#, "null", "true", r#""""#,
        ] {
            assert!(!number.is(other), "{other}");
            assert_ne!(number_of(other), Some(7), "{other}");
        }
        assert!(!is_beside_clients("7") && !is_beside_clients(r#""7""#));
    }

    #[test]
    fn records_keep_their_form() {
        for (id, json) in [
            (RequestId::number(7), "7"),
            (RequestId(r#""raincheck/a""#.into()), r#""raincheck/a""#),
        ] {
            assert_eq!(serde_json::to_string(&id).unwrap(), json);
            assert_eq!(serde_json::from_str::<RequestId>(json).unwrap(), id);
        }
    }
}
