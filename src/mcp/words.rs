//! Looks at eight bytes of a text at once, which costs as much as to look at two of them one by one.

/// A word of eight bytes that are 1.
const EACH: u64 = u64::MAX / 255;

/// Returns `true` if all words of the bytes are of a kind. The last word may overlap the one before, and a short text
/// begins with spaces.
#[inline]
pub fn all_words(bytes: &[u8], is_of_kind: impl Fn(u64) -> bool) -> bool {
    let is_of_kind = |word: &[u8; 8]| is_of_kind(u64::from_le_bytes(*word));
    if let Some(last) = bytes.last_chunk() {
        return is_of_kind(last) && bytes.as_chunks().0.iter().all(is_of_kind);
    }
    let spaces = u64::from_le_bytes([b' '; 8]);
    let put = |word, byte: &u8| (word << 8) | u64::from(*byte);
    is_of_kind(&bytes.iter().fold(spaces, put).to_le_bytes())
}

/// Returns the highest bit of the first byte that is a quote, a backslash or a control character; the bits of later
/// bytes may be wrong. 0: there is none.
#[inline]
pub fn ends_of_plain(word: u64) -> u64 {
    // This exchanges the quote with the space, which is the first after the control characters.
    let control_or_quote = (word ^ (EACH * 0x02)).wrapping_sub(EACH * 0x21);
    let backslash = (word ^ (EACH * 0x5c)).wrapping_sub(EACH);
    (control_or_quote | backslash) & !word & (EACH * 0x80)
}

/// Returns `true` if the bytes are printable ASCII without quotes and backslashes, so that every kind of quoted text
/// has them as they are.
#[inline]
pub fn is_plain_ascii(word: u64) -> bool {
    // One more than DEL has the highest bit, as what is beyond ASCII has.
    let beyond = (word | word.wrapping_add(EACH)) & (EACH * 0x80);
    ends_of_plain(word) | beyond == 0
}

/// Returns `true` if one of the bytes is a backslash.
#[inline]
pub fn has_backslash(word: u64) -> bool {
    let zero_where_it_is = word ^ (EACH * 0x5c);
    zero_where_it_is.wrapping_sub(EACH) & !zero_where_it_is & (EACH * 0x80) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte at each place, among others.
    #[test]
    fn words_say_of_a_text_what_its_bytes_say() {
        let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\');
        for length in 0..20 {
            for (at, byte) in (0..length).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                for other in [b'a', b' ', b'~', b'!', b'#', b'[', b']', 0x80, 0xff] {
                    let mut text = vec![other; length];
                    text[at] = byte;
                    let all = |is_one: &dyn Fn(u8) -> bool| text.iter().all(|byte| is_one(*byte));
                    assert_eq!(
                        all_words(&text, |word| ends_of_plain(word) == 0),
                        all(&is_plain),
                        "{text:?}"
                    );
                    assert_eq!(
                        all_words(&text, is_plain_ascii),
                        all(&|byte| is_plain(byte) && byte < 0x7f),
                        "{text:?}"
                    );
                    assert_eq!(
                        all_words(&text, |word| !has_backslash(word)),
                        all(&|byte| byte != b'\\'),
                        "{text:?}"
                    );
                }
            }
        }
    }
}
