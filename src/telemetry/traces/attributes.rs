//! Attributes as OTLP writes them: of a span, and of the process that exports. Those of a span are written as they are said,
//! so that no list of them is made.

use super::wire::{around, begin, bytes, nested, number};

/// The field of a `Span` that has its attributes.
const ATTRIBUTES: u8 = 9;

/// Writes a text as one of the attributes of a `Span`.
pub(super) fn write_text(out: &mut Vec<u8>, key: &str, text: &str) {
    text_attribute(out, ATTRIBUTES, key, text);
}

/// Writes a number as one of the attributes of a `Span`.
pub(super) fn write_number(out: &mut Vec<u8>, key: &str, value: i64) {
    nested(out, ATTRIBUTES, |out| {
        bytes(out, 1, key.as_bytes());
        nested(out, 2, |out| number(out, 3, value.cast_unsigned()));
    });
}

/// Writes a text that has a key. Its lengths are known before, so that nothing is moved.
pub(super) fn text_attribute(out: &mut Vec<u8>, field: u8, key: &str, text: &str) {
    let value = around(text.len());
    begin(out, field, around(key.len()) + around(value));
    bytes(out, 1, key.as_bytes());
    begin(out, 2, value);
    bytes(out, 1, text.as_bytes());
}
