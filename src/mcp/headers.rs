//! Values of `Mcp-Name` and `Mcp-Param-*` (streamable-http, Value Encoding).

use std::borrow::Cow;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The value that a header carries; `None` where its encoding is not canonical base64 of UTF-8.
/// Decoded once, never twice.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let inside = value
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    match inside {
        None => Some(Cow::Borrowed(value)),
        Some(inside) => String::from_utf8(decode_base64(inside)?)
            .ok()
            .map(Cow::Owned),
    }
}

/// The value as a header may carry it.
pub fn encode(value: &str) -> Cow<'_, str> {
    let is_plain = value
        .bytes()
        .all(|byte| matches!(byte, 0x20..=0x7e | b'\t'))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with(PREFIX) && value.ends_with(SUFFIX));
    if is_plain {
        return Cow::Borrowed(value);
    }
    let mut out = String::from(PREFIX);
    encode_base64(value.as_bytes(), &mut out);
    out.push_str(SUFFIX);
    Cow::Owned(out)
}

fn encode_base64(bytes: &[u8], out: &mut String) {
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |group, byte| (group << 8) | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let six = (group >> (18 - 6 * place)) & 63;
            let letter = ALPHABET.get(six as usize).copied().unwrap_or(b'=');
            out.push(if place <= chunk.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
}

/// Strict: padded, and no stray bits in the last letter.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let letters = text.trim_end_matches('=');
    if text.len() - letters.len() > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut group, mut bits) = (0_u32, 0_u32);
    for letter in letters.bytes() {
        let six = ALPHABET.iter().position(|known| *known == letter)?;
        group = (group << 6) | u32::try_from(six).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from((group >> bits) & 0xff).ok()?);
        }
    }
    let mut canonical = String::with_capacity(text.len());
    encode_base64(&out, &mut canonical);
    (canonical == text).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_specification() {
        for (plain, encoded) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(plain), encoded);
            assert_eq!(decode(encoded).unwrap(), plain);
        }
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for bad in [
            "SGVsbG8",
            "SGVsbG8=x",
            "SGVsbG9=",
            "====",
            "SG Vs",
            "/w==",
            "A===",
        ] {
            assert_eq!(decode(&format!("{PREFIX}{bad}{SUFFIX}")), None, "{bad}");
        }
        assert_eq!(decode("=?base64??=").unwrap(), "");
    }
}
