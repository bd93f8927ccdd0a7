//! Bytes as hex digits.

/// Two lower-case digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

/// `None`: the text is not exactly two digits for each of so many bytes.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    // The parser of numbers also takes a sign in place of the first digit.
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_back_as_their_bytes() {
        assert_eq!(encode(&[0, 10, 255]), "000aff");
        assert_eq!(decode("000AfF"), Some([0, 10, 255]));
        for wrong in [
            "", "000af", "000aff0", "000aff00", "+00aff", "000afg", "é0af",
        ] {
            assert_eq!(decode::<3>(wrong), None, "{wrong}");
        }
    }
}
