//! The point from which another process can fetch the answer of a call.

use std::fmt;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// Marks a point that needs its client. A replica of an earlier version cannot open such a text, and fails the task of a lost
/// owner.
const FOR_CLIENT: &str = "client:";

/// The point from which another process can fetch the answer of a call, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct ResumePoint {
    pub sealed: Box<str>,
    /// `true` if the server wants the credentials of the client, which are never stored: only with those of another request
    /// of the client the answer can be fetched.
    pub needs_client: bool,
}

impl fmt::Debug for ResumePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs_client = self.needs_client;
        write!(f, "ResumePoint {{ needs_client: {needs_client} }}")
    }
}

impl Serialize for ResumePoint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.needs_client {
            to.collect_str(&format_args!("{FOR_CLIENT}{}", self.sealed))
        } else {
            to.serialize_str(&self.sealed)
        }
    }
}

impl<'de> Deserialize<'de> for ResumePoint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<str>::deserialize(from)?;
        Ok(match text.strip_prefix(FOR_CLIENT) {
            Some(sealed) => Self {
                sealed: sealed.into(),
                needs_client: true,
            },
            None => Self {
                sealed: text,
                needs_client: false,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_one_text_in_its_record() {
        for (needs_client, text) in [(false, "\"c2VhbGVk\""), (true, "\"client:c2VhbGVk\"")] {
            let point = ResumePoint {
                sealed: "c2VhbGVk".into(),
                needs_client,
            };
            assert_eq!(serde_json::to_string(&point).unwrap(), text);
            assert_eq!(serde_json::from_str::<ResumePoint>(text).unwrap(), point);
        }
    }
}
