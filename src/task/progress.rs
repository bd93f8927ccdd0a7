//! The server's progress report about a call.

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The latest progress of the server, numbers as it wrote them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    #[serde(serialize_with = "finite")]
    pub progress: f64,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite_too")]
    pub total: Option<f64>,
}

impl Progress {
    /// Reads the progress. Earlier versions wrote `null` for a number that JSON does not have: such progress
    /// is dropped, and the rest of the record counts.
    pub(super) fn known<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            progress: Option<f64>,
            #[serde(default)]
            total: Option<f64>,
        }
        let written = Option::<Written>::deserialize(deserializer)?;
        Ok(written.and_then(|Written { progress, total }| {
            progress.map(|progress| Self { progress, total })
        }))
    }
}

/// Refuses a number that JSON does not have, because such a number would be read back as `null`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn finite<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() {
        serializer.serialize_f64(*number)
    } else {
        Err(S::Error::custom("a number that JSON does not have"))
    }
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn finite_too<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => finite(number, serializer),
        None => serializer.serialize_none(),
    }
}
