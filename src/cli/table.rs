//! Columns of text for a terminal.

use crate::base::printable;

/// Returns the beginning of a text of others, as a terminal may show it.
pub(super) fn short(text: &str) -> String {
    printable::short(text).into_owned()
}

/// Returns a whole text of others, as a terminal may show it in one line.
pub(super) fn cleaned(text: &str) -> String {
    printable::printable(text).into_owned()
}

/// Rows of cells, each column as wide as its widest cell.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0_usize; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            // Letters beyond ASCII have several bytes, and most of them take one cell.
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (width, cell) in widths.iter().zip(row) {
            line.push(' ');
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 1));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows =
            [["tool", "mode"], ["build_everything", "always"]].map(|row| row.map(str::to_owned));
        assert_eq!(
            table(&rows),
            "  tool              mode\n  build_everything  always\n"
        );
    }
}
