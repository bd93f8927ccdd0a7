//! The error in an answer of the server, as far as the message of a failure describes it.
//!
//! No text of the server gets into it, but for short words of its headers: names of content codings and content types.

use std::fmt;

/// The error in an answer, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The text is no JSON from this byte on, which begins with `found`. `None`: the text ends there.
    Json { at: usize, found: Option<u8> },
    /// NaN or Infinity, which some servers write and some clients read.
    NotFinite { at: usize },
    /// The byte there belongs to no UTF-8.
    Utf8 { at: usize },
    /// Other text stands before the message, which begins at this byte.
    Before { at: usize },
    /// There was no answer to `initialize`.
    Silent { seconds: u64 },
    /// A content coding that raincheck cannot undo.
    Coding(HeaderWord),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { at, found: None } => write!(f, "its JSON ends too early, at byte {at}"),
            Self::NotFinite { at } => write!(f, "NaN and Infinity are not JSON, at byte {at}"),
            // A control character of the server must not get into a log or onto a terminal, so its number is shown.
            Self::Json {
                at,
                found: Some(byte),
            } if byte.is_ascii_graphic() => {
                let found = char::from(*byte);
                write!(f, "it is not JSON from '{found}' at byte {at} on")
            }
            Self::Json {
                at,
                found: Some(byte),
            } => write!(f, "it is not JSON from 0x{byte:02x} at byte {at} on"),
            Self::Utf8 { at } => write!(f, "it is not UTF-8 at byte {at}"),
            Self::Before { at } => {
                write!(
                    f,
                    "other text stands before it on its line, up to byte {at}"
                )
            }
            Self::Silent { seconds } => {
                write!(f, "it did not answer initialize for {seconds} s")
            }
            Self::Coding(coding) => write!(f, "the content coding {coding} cannot be undone"),
        }
    }
}

/// The longest word of a header that is repeated.
const WORD_MAX: usize = 31;

/// A word of a header of the server: a name of a few visible characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HeaderWord {
    bytes: [u8; WORD_MAX],
    length: u8,
}

impl HeaderWord {
    /// The word in lower case. Of anything else than a name, the beginning that could be one.
    pub fn of(text: &[u8]) -> Self {
        // The server chooses the word, so nothing in it may have a meaning in a log or in markup.
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._/".contains(byte);
        let mut word = Self {
            bytes: [0; WORD_MAX],
            length: 0,
        };
        let parts = text.iter().take_while(|byte| is_part(byte));
        for (to, from) in word.bytes.iter_mut().zip(parts) {
            *to = from.to_ascii_lowercase();
            word.length += 1;
        }
        word
    }

    fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length));
        std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Display for HeaderWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for HeaderWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_says_what_and_where() {
        let json = |at, found| Flaw::Json { at, found };
        for (flaw, said) in [
            (
                Flaw::NotFinite { at: 9 },
                "NaN and Infinity are not JSON, at byte 9",
            ),
            (json(9, Some(b',')), "it is not JSON from ',' at byte 9 on"),
            (json(9, Some(0x1b)), "it is not JSON from 0x1b at byte 9 on"),
            (json(9, None), "its JSON ends too early, at byte 9"),
            (
                Flaw::Coding(HeaderWord::of(b"ZSTD")),
                "the content coding zstd cannot be undone",
            ),
        ] {
            assert_eq!(flaw.to_string(), said);
        }
    }

    #[test]
    fn no_word_is_long_or_anything_but_a_name() {
        assert_eq!(HeaderWord::of(&[b'x'; 99]).to_string().len(), WORD_MAX);
        assert_eq!(HeaderWord::of(b"br\" <b>").to_string(), "br");
    }
}
