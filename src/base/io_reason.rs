//! Why something failed, in words for people.

use std::error::Error;
use std::fmt::Display;

/// The beginning of the system's number of an error in the text of the error.
const NUMBER: &str = " (os error ";

/// The certificates that `openssl req -x509` makes, in the words of rustls: other clients take them, where they are trusted.
const OF_AUTHORITY: &str = "Other(OtherError(CaUsedAsEndEntity))";

/// Returns the text of an error of the system without the system's number and without names of Rust, which have no use for a
/// person: "No such file or directory". Every text of such an error that a person may see goes through here.
pub fn io_reason(error: &(impl Display + ?Sized)) -> String {
    let mut text = error.to_string();
    if text.contains(OF_AUTHORITY) {
        let plain = "the server shows that of an authority (CA:TRUE) as its own; openssl makes one for a server with -addext \
                     basicConstraints=critical,CA:FALSE";
        text = text.replace(OF_AUTHORITY, plain);
    }
    let mut from = 0;
    while let Some((mut begins, ends)) = number(&text, from) {
        // Windows ends its texts with a full stop.
        begins -= usize::from(
            text.get(..begins)
                .is_some_and(|before| before.ends_with('.')),
        );
        text.replace_range(begins..ends, "");
        // The rest of the text has moved to the left, so the next number cannot begin before this place.
        from = begins;
    }
    text
}

/// Where the next number begins, and where it ends.
fn number(text: &str, from: usize) -> Option<(usize, usize)> {
    let begins = from + text.get(from..)?.find(NUMBER)?;
    let length = text.get(begins..)?.find(')')?;
    Some((begins, begins + length + 1))
}

/// An error and its causes on one line. A cause that the error names itself is not repeated.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = io_reason(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = one_line(&io_reason(cause));
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Some libraries have a line for each thing that they missed.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_number_is_left_out() {
        let missing = io_reason(&std::fs::read("/no/such/file").unwrap_err());
        assert!(missing.ends_with(char::is_alphabetic), "{missing}");
        let own = io::Error::other("it is no file");
        assert_eq!(io_reason(&own), "it is no file");
        for (text, plain) in [
            ("a (os error 5): b (os error 111); c", "a: b; c"),
            ("Access is denied. (os error 5): c", "Access is denied: c"),
            ("unfinished (os error 5", "unfinished (os error 5"),
            ("", ""),
        ] {
            assert_eq!(io_reason(text), plain);
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the server is away: {}", io_reason(.0))]
    struct Away(#[source] io::Error);

    #[test]
    fn a_cause_is_told_once() {
        let refused = || io::Error::from_raw_os_error(111);
        let plain = io_reason(&refused());
        assert!(!plain.contains("os error"), "{plain}");
        let away = Away(refused());
        assert_eq!(with_causes(&away), format!("the server is away: {plain}"));
        let outer = io::Error::other(away);
        assert_eq!(with_causes(&outer), format!("the server is away: {plain}"));
    }
}
