//! The command line: pairs of `--NAME VALUE`.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The options that the user gave. Each is taken out when it is read, so that a misspelt option is left over and can be
/// reported.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    given: BTreeMap<String, Vec<String>>,
}

impl Arguments {
    /// Reads pairs of `--NAME VALUE`.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut given: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                return Err(format!("{word:?} is no option: options are --NAME VALUE"));
            };
            let value = words
                .next()
                .ok_or_else(|| format!("--{name} needs a value"))?;
            given.entry(name.to_owned()).or_default().push(value);
        }
        Ok(Self { given })
    }

    /// The value of an option. The last counts if the option was given more than once.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.given.remove(name)?.pop()
    }

    /// Every value of an option that may be repeated, in the order given.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        self.given.remove(name).unwrap_or_default()
    }

    /// The value of an option that is a number, or `default` if the option is absent.
    pub fn number<N: FromStr>(&mut self, name: &str, default: N) -> Result<N, String> {
        match self.text(name) {
            Some(text) => text
                .parse()
                .map_err(|_| format!("--{name} {text:?}: not a number that fits")),
            None => Ok(default),
        }
    }

    /// Whether a switch is on. Switches are written `--NAME 1`.
    pub fn is_on(&mut self, name: &str) -> bool {
        self.text(name).is_some_and(|value| value == "1")
    }

    /// Fails if an option was given that nothing has read.
    pub fn finish(self) -> Result<(), String> {
        match self.given.into_keys().next() {
            Some(name) => Err(format!("unknown option --{name}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split(' ').map(ToOwned::to_owned))
    }

    #[test]
    fn pairs_are_read_once() {
        let mut given = parsed("--threads 2 --header a --header b --h2 1 --typo x").unwrap();
        assert_eq!(given.number("threads", 1), Ok(2));
        assert_eq!(given.number("tpc", 7), Ok(7));
        assert_eq!(given.all("header"), ["a", "b"]);
        assert!(given.is_on("h2"));
        assert_eq!(given.finish(), Err("unknown option --typo".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(parsed("listen 1").unwrap_err().contains("\"listen\""));
        assert!(parsed("--listen").unwrap_err().contains("--listen"));
        let wrong = parsed("--threads two").unwrap().number("threads", 1);
        assert!(wrong.unwrap_err().contains("--threads"));
    }
}
