//! Globs over tool names: `*`, `?`, `[a-z]`, `[!a-z]`, `{one,two}`, and `\` before a character that stands for itself.
//!
//! A tool's name is no path, so `*` and `?` match every character. Matching takes at most the product of both
//! lengths in steps, whatever the pattern: a client chooses the name.

use std::iter::Peekable;
use std::str::Chars;

/// A pattern that names match or do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// One for each way through the groups in braces.
    alternatives: Vec<Vec<GlobToken>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobToken {
    Literal(char),
    /// `?`
    One,
    /// `*`
    Any,
    /// `[a-z]`, or `[!a-z]` if `negated`.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// Why a text is not a glob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("unclosed character class; missing ']'")]
    UnclosedClass,
    #[error("invalid range; '{0}' > '{1}'")]
    Range(char, char),
    #[error("unclosed alternate group; missing '}}' (maybe escape '{{' with '[{{]'?)")]
    UnclosedGroup,
    #[error("unopened alternate group; missing '{{' (maybe escape '}}' with '[}}]'?)")]
    UnopenedGroup,
    #[error("dangling '\\'")]
    DanglingEscape,
    #[error("more than {ALTERNATIVES_MAX} alternatives")]
    TooManyAlternatives,
}

/// The most alternatives that groups of one pattern make together.
const ALTERNATIVES_MAX: usize = 1_000;

impl Glob {
    pub fn parse(text: &str) -> Result<Self, GlobError> {
        let mut rest = text.chars().peekable();
        let alternatives = sequence(&mut rest, false)?;
        match rest.next() {
            None => Ok(Self { alternatives }),
            Some(_) => Err(GlobError::UnopenedGroup),
        }
    }

    pub fn is_match(&self, name: &str) -> bool {
        let mut alternatives = self.alternatives.iter();
        alternatives.any(|tokens| matches(tokens, name))
    }
}

impl Glob {
    /// Returns `true` if this glob certainly matches every name that the other one matches. Returns `false` also
    /// where that cannot be decided.
    pub fn covers(&self, other: &Self) -> bool {
        let is_covered = |narrow: &Vec<GlobToken>| {
            let mut alternatives = self.alternatives.iter();
            alternatives.any(|wide| covers(wide, narrow))
        };
        other.alternatives.iter().all(is_covered)
    }
}

/// Returns `true` if the wide pattern takes each token of the narrow one in turn. `reached` marks the numbers of
/// tokens of the narrow pattern that the wide one can have taken so far.
fn covers(wide: &[GlobToken], narrow: &[GlobToken]) -> bool {
    let mut reached = vec![false; narrow.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    for token in wide {
        let mut before = false;
        let mut next = Vec::with_capacity(reached.len());
        for (place, is_reached) in reached.iter().enumerate() {
            let taken = place.checked_sub(1).and_then(|last| narrow.get(last));
            let was_reached = std::mem::replace(&mut before, *is_reached);
            next.push(match token {
                // A star takes nothing, or one more token than before.
                GlobToken::Any => *is_reached || next.last() == Some(&true),
                GlobToken::Literal(_) | GlobToken::One | GlobToken::Class { .. } => {
                    was_reached && taken.is_some_and(|taken| token.takes(taken))
                }
            });
        }
        reached = next;
    }
    reached.last() == Some(&true)
}

/// Reads up to the end, or up to the `,` or `}` that ends this part of a group.
fn sequence(
    rest: &mut Peekable<Chars<'_>>,
    in_group: bool,
) -> Result<Vec<Vec<GlobToken>>, GlobError> {
    let mut alternatives = vec![Vec::new()];
    while let Some(c) = rest.next_if(|c| *c != '}' && !(in_group && *c == ',')) {
        let token = match c {
            '*' => GlobToken::Any,
            '?' => GlobToken::One,
            '[' => class(rest)?,
            '\\' => GlobToken::Literal(rest.next().ok_or(GlobError::DanglingEscape)?),
            '{' => {
                alternatives = product(&alternatives, &group(rest)?)?;
                continue;
            }
            literal => GlobToken::Literal(literal),
        };
        for tokens in &mut alternatives {
            tokens.push(token.clone());
        }
    }
    Ok(alternatives)
}

/// Reads behind `{` up to its `}`.
fn group(rest: &mut Peekable<Chars<'_>>) -> Result<Vec<Vec<GlobToken>>, GlobError> {
    let mut all = Vec::new();
    loop {
        all.append(&mut sequence(rest, true)?);
        match rest.next() {
            Some(',') => {}
            Some(_) => return Ok(all),
            None => return Err(GlobError::UnclosedGroup),
        }
    }
}

fn product(
    starts: &[Vec<GlobToken>],
    ends: &[Vec<GlobToken>],
) -> Result<Vec<Vec<GlobToken>>, GlobError> {
    // Checked before the product is made: a short pattern of many groups could take all memory.
    if starts.len().saturating_mul(ends.len()) > ALTERNATIVES_MAX {
        return Err(GlobError::TooManyAlternatives);
    }
    let mut all = Vec::with_capacity(starts.len().saturating_mul(ends.len()));
    for start in starts {
        all.extend(ends.iter().map(|end| [&**start, &**end].concat()));
    }
    Ok(all)
}

/// Reads behind `[` up to its `]`. A `]` at the beginning and a `-` at either end stand for themselves.
fn class(rest: &mut Peekable<Chars<'_>>) -> Result<GlobToken, GlobError> {
    let negated = rest.next_if(|c| matches!(c, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let first = rest.next().ok_or(GlobError::UnclosedClass)?;
        if first == ']' && !ranges.is_empty() {
            return Ok(GlobToken::Class { negated, ranges });
        }
        // A dash makes a range only between two characters, so both are looked at before any is taken.
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *rest = ahead;
                last
            }
            _ => first,
        };
        if first > last {
            return Err(GlobError::Range(first, last));
        }
        ranges.push((first, last));
    }
}

impl GlobToken {
    /// Returns `true` if this token, which stands for one character, stands for all that the other token stands for.
    fn takes(&self, other: &Self) -> bool {
        match (self, other) {
            // A star stands for any number of characters, and this token for one.
            (_, Self::Any) => false,
            (Self::One, _) => true,
            (one, Self::Literal(c)) => one.accepts(*c),
            // Classes are not compared: a wrong no is allowed here, and a wrong yes is not.
            _ => false,
        }
    }

    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == c,
            Self::One | Self::Any => true,
            Self::Class { negated, ranges } => {
                let mut ranges = ranges.iter();
                ranges.any(|(first, last)| (*first..=*last).contains(&c)) != *negated
            }
        }
    }
}

/// After a mismatch only the last `*` takes one more character: giving an earlier `*` more characters would
/// match nothing new.
fn matches(tokens: &[GlobToken], name: &str) -> bool {
    let (mut tokens, mut rest) = (tokens, name.chars());
    let mut last_any: Option<(&[GlobToken], Chars<'_>)> = None;
    loop {
        match tokens.split_first() {
            Some((GlobToken::Any, behind)) => {
                last_any = Some((behind, rest.clone()));
                tokens = behind;
                continue;
            }
            Some((token, behind)) => {
                let mut ahead = rest.clone();
                if ahead.next().is_some_and(|c| token.accepts(c)) {
                    (tokens, rest) = (behind, ahead);
                    continue;
                }
            }
            None if rest.as_str().is_empty() => return true,
            None => {}
        }
        let Some((behind, from)) = &mut last_any else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (tokens, rest) = (behind, from.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_as_a_whole() {
        for (pattern, right, wrong) in [
            ("build", &["build"][..], &["builds", "", "Build"][..]),
            (
                "build_*",
                &["build_", "build_a/b.c"],
                &["build", "a build_"],
            ),
            ("*_docs", &["_docs", "a_docs_docs"], &["docs", "a_docs_"]),
            ("a*b*c", &["abc", "a-b-bc", "abcbc"], &["abcb", "acb"]),
            ("a?c", &["abc", "aüc"], &["ac", "abbc"]),
            ("[a-cx]1", &["b1", "x1"], &["d1", "-1"]),
            ("[!a-c]", &["d", "ü"], &["a", ""]),
            ("[^a]", &["b"], &["a"]),
            ("[]-]", &["]", "-"], &["a", ""]),
            ("[a-]", &["a", "-"], &["b"]),
            ("{a,b*,c}_d", &["a_d", "bx_d", "c_d"], &["d", "x_d"]),
            ("{a,{b,c}}{,2}", &["a", "c2", "b"], &["2", "ac"]),
            (r"\*\\", &[r"*\"], &["a\\"]),
            ("a,b", &["a,b"], &["a"]),
            ("", &[""], &["a"]),
            ("**", &["", "a"], &[]),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            for name in right {
                assert!(glob.is_match(name), "{pattern} matches {name:?}");
            }
            for name in wrong {
                assert!(!glob.is_match(name), "{pattern} matches not {name:?}");
            }
        }
    }

    #[test]
    fn what_is_no_glob_is_refused() {
        let many = "{a,b,c,d}".repeat(5);
        for (pattern, why) in [
            ("a[b", GlobError::UnclosedClass),
            ("[]", GlobError::UnclosedClass),
            ("[z-a]", GlobError::Range('z', 'a')),
            ("{a", GlobError::UnclosedGroup),
            ("a}", GlobError::UnopenedGroup),
            (r"a\", GlobError::DanglingEscape),
            (&*many, GlobError::TooManyAlternatives),
        ] {
            assert_eq!(Glob::parse(pattern).unwrap_err(), why, "{pattern}");
        }
    }

    #[test]
    fn a_long_name_and_many_stars_take_no_time() {
        let glob = Glob::parse(&"*a".repeat(50)).unwrap();
        assert!(!glob.is_match(&"ab".repeat(20_000)));
    }

    #[test]
    fn a_glob_covers_what_it_matches_for_certain() {
        let covers = |wide: &str, narrow: &str| {
            let [wide, narrow] = [wide, narrow].map(|text| Glob::parse(text).unwrap());
            wide.covers(&narrow)
        };
        for (wide, narrow) in [
            ("*", "deploy"),
            ("*", "*"),
            ("build_*", "build_docs"),
            ("build_*", "build_d*s"),
            ("*a*", "b*a"),
            ("{a,b}*", "{ab,b?}"),
            ("?", "x"),
            ("[a-c]", "b"),
            ("a", "a"),
        ] {
            assert!(covers(wide, narrow), "{wide} covers {narrow}");
        }
        for (wide, narrow) in [
            ("deploy", "*"),
            ("build_*", "build*"),
            ("*a*", "[ab]"),
            ("{a,b}", "{a,c}"),
            ("?", "*"),
            ("?", "ab"),
            ("a*b", "a*"),
            ("[a-c]", "[a-b]"),
        ] {
            assert!(!covers(wide, narrow), "{wide} does not cover {narrow}");
        }
    }
}
