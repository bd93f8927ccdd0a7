//! Base64 (RFC 4648): with padding (section 4), as header values and sealed fields carry it, and for URLs without
//! padding (section 5), as tokens and their keys do.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8], out: &mut String) {
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

/// Decodes strictly: the text must be padded, and its last letter must have no stray bits.
pub fn decode(text: &str) -> Option<Vec<u8>> {
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
    // Bits of the last letter that belong to no byte are lost above. Only the encoding of the result shows them.
    let mut canonical = String::with_capacity(text.len());
    encode(&out, &mut canonical);
    (canonical == text).then_some(out)
}

/// Decodes the alphabet for URLs without padding, as strictly as [`decode`].
pub fn decode_url(text: &str) -> Option<Vec<u8>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    // Without this look the two other letters of the plain alphabet, and its padding, would be decoded below, too.
    if !text.bytes().all(plain) {
        return None;
    }
    let mut padded = text.replace('-', "+").replace('_', "/");
    while !padded.len().is_multiple_of(4) {
        padded.push('=');
    }
    decode(&padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_for_urls_has_no_padding() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg"), (&[0xff, 0xfe, 0xfb], "__77")] {
            assert_eq!(decode_url(text).as_deref(), Some(bytes), "{text}");
        }
        for wrong in ["Zg==", "Z", "Zh", "//77", "_+77", "Z g", "Zé"] {
            assert_eq!(decode_url(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_the_canonical_spelling_is_read() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (&[0xff, 0xfe], "//4="),
        ] {
            let mut out = String::new();
            encode(bytes, &mut out);
            assert_eq!(out, text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        for wrong in ["Zg", "Zg=", "Zh==", "Z===", "Z-9v", "Zg==Zg=="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
