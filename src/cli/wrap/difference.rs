//! The lines in which two versions of a settings file differ, as a unified diff without context.

use std::fmt::Write as _;
use std::ops::Range;

use super::file::SettingsFile;
use super::masked::masked;
use crate::base::printable::printable_lines;

/// The lines that change, with secrets masked. The difference is computed on the original texts and shown from the
/// masked texts, which have the same lines.
pub(super) fn difference(file: &SettingsFile, text: &str) -> Result<String, String> {
    let name = file.path.display();
    let (old, new) = (masked(&file.text)?, masked(text)?);
    let (old, new) = (lines(&old), lines(&new));
    let mut out = format!("--- {name}\n+++ {name}\n");
    for hunk in hunks(&lines(&file.text), &lines(text)) {
        let (removed, added) = (place(&hunk.old), place(&hunk.new));
        let _ = writeln!(out, "@@ -{removed} +{added} @@");
        for (mark, lines) in [('-', old.get(hunk.old)), ('+', new.get(hunk.new))] {
            for line in lines.unwrap_or_default() {
                let _ = writeln!(out, "{mark}{line}");
            }
        }
    }
    // A carriage return would be shown as a replacement character at the end of each line.
    Ok(printable_lines(&out.replace('\r', "")).into_owned())
}

fn lines(text: &str) -> Vec<&str> {
    text.split('\n').collect()
}

/// A range of lines as unified diffs write it: counted from 1, and an empty range at the line before it.
fn place(range: &Range<usize>) -> String {
    match range.len() {
        1 => format!("{}", range.start + 1),
        0 => format!("{},0", range.start),
        length => format!("{},{length}", range.start + 1),
    }
}

/// Lines of the old text, and the lines of the new text in their place.
#[derive(Debug, PartialEq, Eq)]
struct Hunk {
    old: Range<usize>,
    new: Range<usize>,
}

/// Above this product of lines the whole middle counts as changed, so that time and memory stay bounded.
const CELLS_MAX: usize = 1 << 20;

fn hunks(old: &[&str], new: &[&str]) -> Vec<Hunk> {
    // Most lines at both ends are the same, which leaves a small table for the rest.
    let start = same(old.iter(), new.iter());
    let old = old.get(start..).unwrap_or_default();
    let new = new.get(start..).unwrap_or_default();
    let end = same(old.iter().rev(), new.iter().rev());
    let old = old.get(..old.len() - end).unwrap_or_default();
    let new = new.get(..new.len() - end).unwrap_or_default();
    let kept = if old.len().saturating_mul(new.len()) > CELLS_MAX {
        Vec::new()
    } else {
        common(old, new)
    };
    let mut hunks = Vec::new();
    let mut from = (0, 0);
    for to in kept.into_iter().chain([(old.len(), new.len())]) {
        if from != to {
            hunks.push(Hunk {
                old: start + from.0..start + to.0,
                new: start + from.1..start + to.1,
            });
        }
        from = (to.0 + 1, to.1 + 1);
    }
    hunks
}

/// Returns the number of lines that are the same before the first difference.
fn same<'a>(
    old: impl Iterator<Item = &'a &'a str>,
    new: impl Iterator<Item = &'a &'a str>,
) -> usize {
    old.zip(new).take_while(|(old, new)| old == new).count()
}

/// The places of a longest common subsequence in both texts.
fn common(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    // Row i, column j: the length for the last i lines of the old text and the last j lines of the new one.
    let mut lengths: Vec<Vec<u32>> = vec![vec![0; new.len() + 1]];
    for a in old.iter().rev() {
        let above = lengths.last().cloned().unwrap_or_default();
        let mut row = vec![0];
        for (b, (diagonal, up)) in new.iter().rev().zip(above.iter().zip(above.iter().skip(1))) {
            let left = row.last().copied().unwrap_or(0);
            row.push(if a == b { diagonal + 1 } else { left.max(*up) });
        }
        lengths.push(row);
    }
    let length = |i: usize, j: usize| lengths.get(i).and_then(|row| row.get(j));
    let mut kept = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(a), Some(b)) = (old.get(i), new.get(j)) {
        let (left_of_old, left_of_new) = (old.len() - i, new.len() - j);
        if a == b {
            kept.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if length(left_of_old - 1, left_of_new) >= length(left_of_old, left_of_new - 1) {
            i += 1;
        } else {
            j += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_that_differ_are_told() {
        for (old, new, expected) in [
            ("a b c", "a b c", vec![]),
            ("a b c", "a x c", vec![(1..2, 1..2)]),
            ("a c", "a b c", vec![(1..1, 1..2)]),
            ("a b c", "a c", vec![(1..2, 1..1)]),
            ("", "a", vec![(0..1, 0..1)]),
            ("a b c d e", "a x c y e", vec![(1..2, 1..2), (3..4, 3..4)]),
            ("a b c d", "c d a b", vec![(0..2, 0..0), (4..4, 2..4)]),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(old, new)| Hunk { old, new })
                .collect();
            let split = |text: &'static str| text.split(' ').collect::<Vec<_>>();
            assert_eq!(hunks(&split(old), &split(new)), expected, "{old} / {new}");
        }
    }

    #[test]
    fn a_text_of_too_many_lines_changes_as_a_whole() {
        let old: Vec<String> = (0..2000).map(|line| format!("{line}")).collect();
        let new: Vec<String> = (0..2000).map(|line| format!("new {}", line / 2)).collect();
        let view = |lines: &'static [String]| lines.iter().map(String::as_str).collect::<Vec<_>>();
        let (old, new) = (view(old.leak()), view(new.leak()));
        let whole = Hunk {
            old: 0..2000,
            new: 0..2000,
        };
        assert_eq!(hunks(&old, &new), [whole]);
    }

    #[test]
    fn places_are_written_as_diff_writes_them() {
        assert_eq!(place(&(0..1)), "1");
        assert_eq!(place(&(3..5)), "4,2");
        assert_eq!(place(&(3..3)), "3,0");
    }
}
