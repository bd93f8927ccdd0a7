//! Why a file cannot be used, in plain words.

use std::fmt::Display;

/// The text of an error of the system without the system's number, which tells a person nothing: "No such file or directory".
pub fn io_reason(error: &impl Display) -> String {
    let mut text = error.to_string();
    if let Some(number) = text.find(" (os error") {
        text.truncate(number);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_number_is_left_out() {
        let missing = std::fs::read("/no/such/file").unwrap_err();
        assert_eq!(io_reason(&missing), "No such file or directory");
        let own = io::Error::other("it is no file");
        assert_eq!(io_reason(&own), "it is no file");
    }
}
