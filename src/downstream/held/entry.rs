//! One entry of the log of a held call: what was said at one time.

use bytes::Bytes;

/// What was said at one time: JSON, a line feed, where the server can be come back to behind it if
/// that is known (sealed), and a last byte that tells what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry(pub(super) Bytes);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A notification, or a request of the server's.
    Message,
    /// The answer. Nothing follows.
    Answer,
    /// There will be no answer.
    End,
    /// A message that was too large to be kept.
    Lost,
}

impl Meaning {
    fn letter(self) -> char {
        match self {
            Self::Message => 'm',
            Self::Answer => 'a',
            Self::End => 'e',
            Self::Lost => 'l',
        }
    }

    pub(super) fn is_last(self) -> bool {
        matches!(self, Self::Answer | Self::End)
    }

    fn of(letter: u8) -> Option<Self> {
        [Self::Message, Self::Answer, Self::End, Self::Lost]
            .into_iter()
            .find(|meaning| meaning.letter() == char::from(letter))
    }
}

impl Entry {
    pub(super) fn new(meaning: Meaning, json: String) -> Self {
        Self::resumable(meaning, json, "")
    }

    pub(super) fn resumable(meaning: Meaning, mut json: String, sealed: &str) -> Self {
        json.push('\n');
        json.push_str(sealed);
        json.push(meaning.letter());
        Self(json.into())
    }

    /// As the store had it. What nobody here wrote is passed over.
    pub(super) fn read(bytes: Bytes) -> Option<Self> {
        let entry = Self(bytes);
        entry.parts().map(|_| ())?;
        Some(entry)
    }

    fn parts(&self) -> Option<(Meaning, &str, &str)> {
        let (last, text) = self.0.split_last()?;
        let (json, sealed) = std::str::from_utf8(text).ok()?.rsplit_once('\n')?;
        Some((Meaning::of(*last)?, json, sealed))
    }

    pub(super) fn meaning(&self) -> Meaning {
        self.parts().map_or(Meaning::End, |(meaning, ..)| meaning)
    }

    pub(super) fn json(&self) -> &str {
        self.parts().map_or("", |(_, json, _)| json)
    }

    pub(super) fn sealed(&self) -> Option<&str> {
        let (.., sealed) = self.parts()?;
        Some(sealed).filter(|sealed| !sealed.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for meaning in [
            Meaning::Message,
            Meaning::Answer,
            Meaning::End,
            Meaning::Lost,
        ] {
            let json = "{\"é\":\n1}";
            for (sealed, expected) in [("", None), ("AAAA", Some("AAAA"))] {
                let entry = Entry::resumable(meaning, json.into(), sealed);
                let read = Entry::read(entry.0.clone()).unwrap();
                assert_eq!((read.meaning(), read.json()), (meaning, json));
                assert_eq!(read.sealed(), expected);
            }
        }
        for foreign in ["", "{}", "x", "{}m"] {
            assert_eq!(Entry::read(Bytes::from_static(foreign.as_bytes())), None);
        }
    }
}
