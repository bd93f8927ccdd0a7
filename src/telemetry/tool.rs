//! Tool names as labels. Clients choose them, so their number and their length are bounded.

use std::collections::BTreeSet;

use crate::lock::Mutex;

/// The most tool names that become labels. Every further name is counted under [`OTHER`].
const NAMES_MAX: usize = 200;

/// A longer name is cut.
const CHARS_MAX: usize = 64;

const OTHER: &str = "other";

/// The names that are labels already.
static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Calls `use_label` with the label of this tool.
pub(super) fn with_label<T>(name: &str, use_label: impl FnOnce(&str) -> T) -> T {
    let name = cut(name);
    let is_known = {
        let mut names = NAMES.lock();
        names.contains(name) || (names.len() < NAMES_MAX && names.insert(name.to_owned()))
    };
    use_label(if is_known { name } else { OTHER })
}

fn cut(name: &str) -> &str {
    name.char_indices()
        .nth(CHARS_MAX)
        .and_then(|(end, _)| name.get(..end))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let long = "é".repeat(CHARS_MAX + 1);
        assert_eq!(with_label(&long, str::len), CHARS_MAX * 2);
        let label = |number: usize| with_label(&format!("tool-{number}"), str::to_owned);
        let labels: BTreeSet<String> = (0..2 * NAMES_MAX).map(label).collect();
        assert!(
            labels.len() <= NAMES_MAX + 1 && labels.contains(OTHER),
            "{}",
            labels.len()
        );
        // What was a label stays one.
        assert_eq!(label(0), "tool-0");
    }
}
