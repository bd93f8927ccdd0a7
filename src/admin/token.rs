//! A secret that a request must name.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;

/// A secret that a request must name: the token of a drain, or of an operator.
pub struct Token(Box<[u8]>);

impl Token {
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// Compares in a time that depends only on the length.
    pub(super) fn is(&self, text: &str) -> bool {
        verify_slices_are_equal(&self.0, text.as_bytes()).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
