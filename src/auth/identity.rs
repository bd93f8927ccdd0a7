//! A client that proved who it is.

use std::fmt::Write as _;
use std::sync::Arc;

use hyper::header::HeaderValue;

use crate::base::printable::printable;
use crate::task::id::Caller;

/// A client that proved who it is. Made once for each credential; requests share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the client's tasks. A renewed credential of the same client gives the same caller.
    pub caller: Caller,
    /// The identity that the client proved, in one word for the server: see [`name_of`].
    pub name: HeaderValue,
    /// The name that operators know the client by. It is no secret and decides nothing.
    pub label: Option<Arc<str>>,
    /// The scopes that the credential allows.
    pub scopes: Box<[Box<str>]>,
    /// When the credential expires, in Unix milliseconds. `None`: it does not expire.
    pub ends_at_ms: Option<u64>,
}

impl Identity {
    /// The scopes of these that the credential lacks.
    pub fn lacks<'s>(&self, wanted: &'s [Box<str>]) -> impl Iterator<Item = &'s str> {
        let lacking = wanted.iter().filter(|scope| !self.scopes.contains(scope));
        lacking.map(AsRef::as_ref)
    }
}

/// The longest label, in characters: each task of the client keeps it.
const LABEL_MAX: usize = 128;

/// A label as operators see it. It is cut: an issuer decides how long a claim is.
pub fn label_of(text: &str) -> Arc<str> {
    let text: String = text.chars().take(LABEL_MAX).collect();
    printable(&text).into()
}

/// Returns the identity of a client, given by these words, as one word of visible ASCII: the words with `#` between
/// them. Any other byte is written as in a URL, and so are `#` and `%`, so that two clients never have the same name.
pub fn name_of(words: &[&str]) -> HeaderValue {
    let mut name = String::new();
    for (place, word) in words.iter().enumerate() {
        if place > 0 {
            name.push('#');
        }
        for byte in word.bytes() {
            if byte.is_ascii_graphic() && !b"#%".contains(&byte) {
                name.push(char::from(byte));
            } else {
                let _ = write!(name, "%{byte:02X}");
            }
        }
    }
    // Every byte above is visible ASCII, so the fallback is never taken.
    HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_of_one_line() {
        assert_eq!(&*label_of("a\nb"), "a\u{fffd}b");
        assert_eq!(label_of(&"\u{e9}".repeat(1000)).chars().count(), LABEL_MAX);
    }

    #[test]
    fn two_clients_never_have_one_name() {
        assert_eq!(name_of(&["ci"]), "ci");
        assert_eq!(
            name_of(&["https://login.example", "a b", "tenant", "1"]),
            "https://login.example#a%20b#tenant#1"
        );
        assert_eq!(name_of(&["i", "a#b"]), "i#a%23b");
        assert_eq!(name_of(&["i", "a%23b\r\n"]), "i#a%2523b%0D%0A");
        assert_eq!(name_of(&["i", "\u{e9}"]), "i#%C3%A9");
    }
}
