//! The digest by which requests and answers are compared.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The first half of a SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest([u8; 16]);

impl Digest {
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the digest of the parts that two requests must have in common to be the same call.
    pub fn of_call(method: &str, name: Option<&str>, arguments: Option<&RawValue>) -> Self {
        let arguments = arguments.map_or("", RawValue::get);
        Self::of(&[method, name.unwrap_or_default(), arguments])
    }

    pub fn of(parts: &[&str]) -> Self {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for part in parts {
            // With the length first, no two lists of parts have the same bytes.
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        let mut half = [0_u8; 16];
        for (to, from) in half.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        Self(half)
    }
}
