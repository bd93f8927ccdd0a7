//! Text that must not be printed: not in a log, not in an error message, and not by the `Debug` of a struct
//! that contains it.

use std::fmt;

use crate::mcp::hex;

/// A text that always prints as `[secret]`. Code that needs the text calls [`Secret::expose`], which is easy
/// to find in a review.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Thirty-two secret bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// Sixty-four hex digits.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text.trim()).map(Self)
    }

    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_key_is_hex() {
        let key = SealKey::from_hex(&"0aF".repeat(22)[..64]).unwrap();
        assert_eq!(&key.expose()[..3], [0x0a, 0xf0, 0xaf]);
        assert!(!format!("{key:?}").contains("10"));
        for wrong in ["", "00", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert_eq!(SealKey::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn it_is_never_printed() {
        let secret = Secret::new("hunter2");
        assert_eq!(
            format!("{secret} {secret:?} {:#?}", Some(&secret))
                .matches("hunter2")
                .count(),
            0
        );
        assert_eq!(secret.expose(), "hunter2");
    }
}
