//! Columns of text for a terminal.

pub(super) use crate::app::diagnose::{cleaned, printable};

/// Rows of cells, each column as wide as its widest cell.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0_usize; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
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

    #[test]
    fn a_server_cannot_write_to_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
