//! A progress bar as one line of text.

/// Back to the beginning of the line, and the line empty.
pub(super) const CLEAR_LINE: &str = "\r\u{1b}[2K";

const BAR_CELLS: u64 = 30;

/// A bar of thirty cells.
pub(super) fn bar(done: u64, total: u64) -> String {
    // A total of zero would be a division by zero.
    let total = total.max(1);
    let full = done.min(total).saturating_mul(BAR_CELLS) / total;
    (0..BAR_CELLS)
        .map(|cell| if cell < full { '#' } else { '.' })
        .collect()
}

/// Turns a number of the wire, which is a float, into a whole number of steps.
pub(super) fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and only draws a bar"
    )]
    let whole = number as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert_eq!(bar(0, 4), ".".repeat(30));
        assert_eq!(bar(2, 4), format!("{}{}", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(9, 4), "#".repeat(30));
        assert_eq!(bar(0, 0), ".".repeat(30));
    }
}
