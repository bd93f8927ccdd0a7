//! One entry in the event log of a resumable call. Pure.

use bytes::Bytes;

use super::other_events::OtherEvents;

/// One event of a call, as the store has it: the JSON, a line feed, the server's event id from which the call
/// can be resumed (sealed, and empty if there is none), and a last byte for the kind. Before the last byte may be a
/// space and the [other events](OtherEvents) that came before this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry(pub(super) Bytes);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A notification, or a request of the server's.
    Message,
    /// The answer. Nothing follows.
    Answer,
    /// There will be no answer.
    End,
    /// A message that was too large for the log.
    Omitted,
}

impl EntryKind {
    fn letter(self) -> char {
        match self {
            Self::Message => 'm',
            Self::Answer => 'a',
            Self::End => 'e',
            Self::Omitted => 'l',
        }
    }

    /// Nothing follows an entry of this kind.
    pub fn is_last(self) -> bool {
        matches!(self, Self::Answer | Self::End)
    }

    fn of(letter: u8) -> Option<Self> {
        [Self::Message, Self::Answer, Self::End, Self::Omitted]
            .into_iter()
            .find(|kind| kind.letter() == char::from(letter))
    }
}

impl LogEntry {
    pub fn new(kind: EntryKind, json: String) -> Self {
        Self::resumable(kind, json, "")
    }

    pub fn resumable(kind: EntryKind, mut json: String, sealed: &str) -> Self {
        json.push('\n');
        json.push_str(sealed);
        json.push(kind.letter());
        Self(json.into())
    }

    /// With the events that came before this one and are no messages.
    pub(super) fn after(self, others: &OtherEvents) -> Self {
        if others.is_empty() {
            return self;
        }
        let Some((kind, json, sealed, _)) = self.parts() else {
            return self;
        };
        let others = serde_json::to_string(others).unwrap_or_default();
        Self::resumable(kind, json.to_owned(), &format!("{sealed} {others}"))
    }

    /// Without the events that came before it.
    pub(super) fn alone(&self) -> Self {
        match self.parts() {
            Some((kind, json, sealed, Some(_))) => Self::resumable(kind, json.to_owned(), sealed),
            Some(_) | None => self.clone(),
        }
    }

    /// Reads what the store had. `None`: no version of raincheck wrote it.
    pub fn read(bytes: Bytes) -> Option<Self> {
        let entry = Self(bytes);
        entry.parts().map(|_| ())?;
        Some(entry)
    }

    fn parts(&self) -> Option<(EntryKind, &str, &str, Option<&str>)> {
        let (last, text) = self.0.split_last()?;
        // The last line feed separates, because the JSON may contain line feeds and nothing behind it does.
        let (json, rest) = std::str::from_utf8(text).ok()?.rsplit_once('\n')?;
        let (sealed, others) = match rest.split_once(' ') {
            Some((sealed, others)) => (sealed, Some(others)),
            None => (rest, None),
        };
        Some((EntryKind::of(*last)?, json, sealed, others))
    }

    /// The events that came before this one and are no messages.
    pub fn others(&self) -> OtherEvents {
        let others = self.parts().and_then(|(.., others)| others);
        let read = others.and_then(|others| serde_json::from_str(others).ok());
        // Other events that cannot be read are dropped, because clients ignore them and need the message.
        read.unwrap_or_default()
    }

    pub fn kind(&self) -> EntryKind {
        self.parts().map_or(EntryKind::End, |(kind, ..)| kind)
    }

    pub fn json(&self) -> &str {
        self.parts().map_or("", |(_, json, ..)| json)
    }

    /// The server's event id from which the call can be resumed behind this entry.
    pub fn sealed(&self) -> Option<&str> {
        let (_, _, sealed, _) = self.parts()?;
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
        for kind in [
            EntryKind::Message,
            EntryKind::Answer,
            EntryKind::End,
            EntryKind::Omitted,
        ] {
            let json = "{\"é\":\n1}";
            for (sealed, expected) in [("", None), ("AAAA", Some("AAAA"))] {
                let entry = LogEntry::resumable(kind, json.into(), sealed);
                let mut others = OtherEvents::default();
                assert_eq!(entry.clone().after(&others), entry);
                others.add("event: a b\ndata: {\ndata: }\n\n");
                let behind = entry.clone().after(&others);
                assert_eq!((behind.others(), behind.alone()), (others, entry.clone()));
                for entry in [entry, behind] {
                    let read = LogEntry::read(entry.0.clone()).unwrap();
                    assert_eq!((read.kind(), read.json()), (kind, json));
                    assert_eq!(read.sealed(), expected);
                }
            }
        }
        for foreign in ["", "{}", "x", "{}m"] {
            assert_eq!(LogEntry::read(Bytes::from_static(foreign.as_bytes())), None);
        }
    }
}
