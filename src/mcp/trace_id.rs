//! The ids of traces and spans (W3C Trace Context, `trace-id` and `parent-id`).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::hex;

/// So many bytes, written as hexadecimal digits in lower case. Not all of them are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexId<const N: usize>([u8; N]);

pub type TraceId = HexId<16>;
pub type SpanId = HexId<8>;

impl<const N: usize> HexId<N> {
    /// An id of these bytes. Zero is no id, and becomes one.
    pub fn from_bytes(mut bytes: [u8; N]) -> Self {
        if bytes.iter().all(|byte| *byte == 0)
            && let Some(last) = bytes.last_mut()
        {
            *last = 1;
        }
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; N] {
        &self.0
    }

    /// `None`: the text is no id.
    pub fn parse(text: &str) -> Option<Self> {
        let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let bytes: [u8; N] = hex::decode(text).filter(|_| text.bytes().all(is_lower_hex))?;
        bytes.iter().any(|byte| *byte != 0).then_some(Self(bytes))
    }
}

impl<const N: usize> HexId<N> {
    /// Writes the digits, two for each byte. Each request has two ids, so `{:02x}` is too slow here.
    #[inline]
    pub(super) fn write_to(&self, mut out: &mut [u8]) {
        // The loop writes four bytes at a time, and would leave out a rest.
        const { assert!(N.is_multiple_of(4)) };
        let mut left = self.0.as_slice();
        while let Some((bytes, bytes_after)) = left.split_first_chunk()
            && let Some((place, places_after)) = out.split_first_chunk_mut()
        {
            *place = eight_digits(*bytes);
            (left, out) = (bytes_after, places_after);
        }
    }
}

/// The hexadecimal digits of four bytes, all at once.
#[inline]
fn eight_digits(bytes: [u8; 4]) -> [u8; 8] {
    let mut halves = u64::from(u32::from_be_bytes(bytes));
    // A byte for each half of a byte.
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
    ] {
        halves = (halves | halves << shift) & mask;
    }
    // Six more carries into the upper half of the byte for ten and above, and only for these.
    let are_letters = ((halves + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    let to_letters = u64::from(b'a' - b'0' - 10);
    (halves + 0x3030_3030_3030_3030 + are_letters * to_letters).to_be_bytes()
}

impl<const N: usize> fmt::Display for HexId<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = vec![0; 2 * N];
        self.write_to(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl<const N: usize> fmt::Debug for HexId<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> Serialize for HexId<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for HexId<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("no id of a trace"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_zero() {
        assert_eq!(SpanId::from_bytes([0; 8]).to_string(), "0000000000000001");
        assert_eq!(SpanId::parse("0000000000000000"), None);
    }
}
