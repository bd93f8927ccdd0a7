//! Parts of a long text: a range of its bytes, and the lines that contain a word. No part ends inside a character. Pure.

use std::fmt::Write as _;

use std::ops::Range;

/// The most bytes of a line that [`grep`] shows at once.
const LINE_MAX: usize = 400;

/// A range of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice<'t> {
    pub text: &'t str,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// Where the next slice begins. `None`: this one is the last.
    pub next: Option<usize>,
}

/// The range that begins at `offset`, or at the start of the character there, with at most `limit` bytes. At least one
/// character, so that a reader who goes on at `next` comes to the end.
pub fn slice(text: &str, offset: u64, limit: usize) -> Slice<'_> {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let offset = text.floor_char_boundary(offset);
    let rest = text.get(offset..).unwrap_or_default();
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let end = rest.floor_char_boundary(limit).max(first);
    Slice {
        text: rest.get(..end).unwrap_or_default(),
        offset,
        next: (end < rest.len()).then_some(offset + end),
    }
}

/// The lines with a word.
#[derive(Debug, PartialEq, Eq)]
pub struct Matches {
    /// One line each, behind the offset of the line; in a long line, behind the offset of the match.
    pub lines: String,
    pub number: usize,
    /// Where the search goes on. `None`: there are no further matches.
    pub next: Option<usize>,
}

/// The lines at or behind `offset` that contain `word`, in any case of ASCII letters, in at most `limit` bytes. At least one
/// line if there is a match. Of a line of more than 400 bytes, what is around each match is a line of its own.
pub fn grep(text: &str, word: &str, offset: u64, limit: usize) -> Matches {
    let mut found = Matches {
        lines: String::new(),
        number: 0,
        next: None,
    };
    let word = word.to_ascii_lowercase();
    // A client chooses the offset, which may lie inside a character.
    let mut at = slice(text, offset, 1).offset;
    for line in text.get(at..).unwrap_or_default().split_inclusive('\n') {
        let begins = at;
        at += line.len();
        // Only ASCII letters change, so a place in the folded line is the same place in the line.
        let folded = line.to_ascii_lowercase();
        let line = line.trim_end_matches(['\n', '\r']);
        let mut from = 0;
        while let Some(matched) = folded.get(from..).and_then(|rest| rest.find(&word)) {
            let matched = from + matched;
            let place = around(line, from, matched);
            let shown = line.get(place.clone()).unwrap_or_default();
            let is_long = line.len() > LINE_MAX;
            let offset = begins + if is_long { matched } else { 0 };
            if found.number > 0 && found.lines.len() + shown.len() + 24 > limit {
                found.next = Some(offset);
                return found;
            }
            let before = if place.start > 0 { ".. " } else { "" };
            let more = if place.end < line.len() { " .." } else { "" };
            let _ = writeln!(found.lines, "{offset}: {before}{shown}{more}");
            found.number += 1;
            // A short line is shown whole, with all its further matches.
            if !is_long {
                break;
            }
            // An empty word matches everywhere, so the search has to move on by itself.
            from = place.end.max(matched + word.len().max(1));
        }
    }
    found
}

/// Returns the part of a line with a match that is shown: all of it, or the text around the match and behind `from`.
fn around(line: &str, from: usize, matched: usize) -> Range<usize> {
    if line.len() <= LINE_MAX {
        return 0..line.len();
    }
    let start = line.floor_char_boundary(matched.saturating_sub(LINE_MAX / 4));
    let start = start.max(from);
    start..line.floor_char_boundary(start + LINE_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slices_put_together_are_the_text(text in any::<String>(), limit in 0_usize..40) {
            let (mut whole, mut offset) = (String::new(), Some(0));
            while let Some(at) = offset {
                let slice = slice(&text, at as u64, limit);
                prop_assert_eq!(slice.offset, whole.len());
                prop_assert!(slice.text.len() <= limit.max(4));
                whole.push_str(slice.text);
                offset = slice.next;
            }
            prop_assert_eq!(whole, text);
        }

        #[test]
        fn every_match_is_found_once(lines in prop::collection::vec("[aä x]{0,9}", 0..30), limit in 0_usize..60) {
            let text = lines.join("\n");
            let expected = lines.iter().filter(|line| line.contains('x')).count();
            let (mut number, mut offset) = (0, Some(0));
            while let Some(at) = offset {
                let found = grep(&text, "X", at as u64, limit);
                number += found.number;
                prop_assert!(found.next.is_none_or(|next| next > at));
                offset = found.next;
            }
            prop_assert_eq!(number, expected);
        }
    }

    #[test]
    fn an_offset_within_a_character_is_moved_to_its_start() {
        let of = |offset, limit| slice("aäb", offset, limit);
        assert_eq!(of(2, 2).text, "ä");
        assert_eq!((of(2, 2).offset, of(2, 2).next), (1, Some(3)));
        assert_eq!(of(99, 2).text, "");
        assert_eq!(of(99, 2).next, None);
    }

    #[test]
    fn matches_say_where_they_are() {
        let found = grep("one\ntwo error\nthree\nErRor four", "error", 0, 1000);
        assert_eq!(found.lines, "4: two error\n20: ErRor four\n");
        assert_eq!((found.number, found.next), (2, None));
        let long = format!("{}nEEdle{}", "ä".repeat(5000), "ö".repeat(5000));
        let found = grep(&long, "needle", 0, 1000);
        assert_eq!(
            found.lines,
            format!("10000: .. {}nEEdle{} ..\n", "ä".repeat(50), "ö".repeat(147))
        );
        let several = format!("one\n{}", format!("{}error", "-".repeat(995)).repeat(5));
        let (mut places, mut offset) = (Vec::<usize>::new(), Some(0));
        while let Some(at) = offset {
            let found = grep(&several, "error", at as u64, 900);
            places.extend(found.lines.lines().map(|line| {
                assert!(line.contains("error"), "{line}");
                line.split(':').next().unwrap().parse::<usize>().unwrap()
            }));
            offset = found.next;
        }
        assert_eq!(places, [999, 1999, 2999, 3999, 4999]);
        let long = "x".repeat(2000);
        assert!(grep(&long, "x", 0, 10).lines.len() < 420);
    }
}
