//! Attributes as OTLP writes them: of a span, and of the process that exports. Those of a span are written one by
//! one, so that no list of them is made.

use super::wire::{LENGTH_BYTE_MAX, around, begin, bytes, length_key, low, nested, number};

/// The field of a `Span` that has its attributes.
const ATTRIBUTES: u8 = 9;

/// Room for the longest key and what is written around it.
const HEAD_MAX: usize = 40;

/// The key of a text, made when this is compiled: as it is written, with all that comes before the text.
#[derive(Debug)]
pub(super) struct Key {
    name: &'static str,
    head: [u8; HEAD_MAX],
    head_bytes: usize,
}

impl Key {
    /// Each length is one byte, as nearly always. Those that the text decides are filled in later.
    pub(super) const fn new(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        let mut head = [0; HEAD_MAX];
        let (begin, rest) = head.split_at_mut(4);
        let name_bytes = low(bytes.len() as u64);
        begin.copy_from_slice(&[length_key(ATTRIBUTES), 0, length_key(1), name_bytes]);
        let (middle, rest) = rest.split_at_mut(bytes.len());
        middle.copy_from_slice(bytes);
        let (end, _rest) = rest.split_at_mut(4);
        end.copy_from_slice(&[length_key(2), 0, length_key(1), 0]);
        Self {
            name,
            head,
            head_bytes: 4 + bytes.len() + 4,
        }
    }

    /// Writes a text as one of the attributes of a `Span`.
    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>, text: &str) {
        // The first two bytes, the key and the length of the whole, are not part of what they describe.
        let whole = self.head_bytes + text.len() - 2;
        let mut head = self.head;
        // A longer length takes two bytes, for which the prepared head has no room.
        if whole <= LENGTH_BYTE_MAX
            && let Some(head) = head.get_mut(..self.head_bytes)
            && let [_, whole_bytes, .., _, value_bytes, _, text_bytes] = &mut *head
        {
            *whole_bytes = low(whole as u64);
            *value_bytes = low(text.len() as u64 + 2);
            *text_bytes = low(text.len() as u64);
            out.extend_from_slice(head);
            out.extend_from_slice(text.as_bytes());
        } else {
            text_attribute(out, ATTRIBUTES, self.name, text);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::new("a.key");

    #[test]
    fn a_text_of_any_length_is_written_as_its_fields_are() {
        for length in (0..300).chain([20_000]) {
            let text = "x".repeat(length);
            let (mut written, mut fields) = (Vec::new(), Vec::new());
            KEY.write(&mut written, &text);
            text_attribute(&mut fields, ATTRIBUTES, "a.key", &text);
            assert_eq!(written, fields, "{length}");
        }
    }
}
