//! Tool names as labels. Clients choose the names that they call, so the number and the length of labels are bounded, and
//! names that the server neither listed nor answered have only a part of them: a client that invents names takes no label
//! from a tool that is there.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::base::lock::Mutex;
use crate::base::printable::printable;

/// The most labels of tools that the server listed, or has answered a call of. Every further name is counted under [`OTHER`].
const PROVED_MAX: usize = 200;

/// The most labels of other names. A tool that fails from its first call on is often one of them.
const UNPROVED_MAX: usize = 50;

/// The most names of lists that are kept until they are called.
const LISTED_MAX: usize = 4_096;

/// A longer name is cut.
const CHARS_MAX: usize = 64;

const OTHER: &str = "other";

static NAMES: Mutex<ToolNames> = Mutex::new(ToolNames::new());

/// The names that operators may see in the metrics.
#[derive(Debug)]
struct ToolNames {
    /// The labels of tools that the server has.
    proved: BTreeSet<String>,
    /// The labels of names that may be invented.
    unproved: BTreeSet<String>,
    /// The names that are proved when they are called.
    listed: BTreeSet<String>,
}

impl ToolNames {
    const fn new() -> Self {
        Self {
            proved: BTreeSet::new(),
            unproved: BTreeSet::new(),
            listed: BTreeSet::new(),
        }
    }

    fn list(&mut self, name: &str) {
        let name = cut(name);
        // Beyond the bound, only a good answer proves a tool.
        if self.listed.len() < LISTED_MAX && !self.listed.contains(&*name) {
            self.listed.insert(name.into_owned());
        }
    }

    /// Returns true if the name is a label from now on.
    fn take(&mut self, name: &str, is_proved: bool) -> bool {
        if self.proved.contains(name) {
            return true;
        }
        if (is_proved || self.listed.contains(name)) && self.proved.len() < PROVED_MAX {
            // A proved name leaves its place among the others to another name.
            self.unproved.remove(name);
            self.proved.insert(name.to_owned());
            return true;
        }
        if self.unproved.contains(name) {
            return true;
        }
        let has_room = self.unproved.len() < UNPROVED_MAX;
        if has_room {
            self.unproved.insert(name.to_owned());
        }
        has_room
    }

    /// Returns true if the name would be a label only if it was proved.
    fn needs_proof(&self, name: &str) -> bool {
        self.unproved.len() >= UNPROVED_MAX
            && self.proved.len() < PROVED_MAX
            && ![&self.unproved, &self.proved, &self.listed]
                .iter()
                .any(|known| known.contains(name))
    }
}

/// Remembers the names of a list of the server. Each is a label from its first call on.
pub fn listed(names: &[Box<str>]) {
    let mut known = NAMES.lock();
    for name in names {
        known.list(name);
    }
}

/// Returns `true` if a tool that the server listed, or answered a call of, has such a name. `None`: no name is known.
pub fn is_known(is_wanted: impl Fn(&str) -> bool) -> Option<bool> {
    let known = NAMES.lock();
    let mut names = known.listed.iter().chain(&known.proved).peekable();
    names.peek()?;
    Some(names.any(|name| is_wanted(name)))
}

/// Makes the name a label, because the server answered a call of it with a good result.
pub(super) fn succeeded(name: &str) {
    NAMES.lock().take(&cut(name), true);
}

/// Returns true if a good answer would make the name a label, and nothing else does.
pub(super) fn needs_proof(name: &str) -> bool {
    NAMES.lock().needs_proof(&cut(name))
}

/// Calls `use_label` with the label of this tool.
pub(super) fn with_label<T>(name: &str, use_label: impl FnOnce(&str) -> T) -> T {
    with_label_of(name, false, use_label)
}

/// Calls `use_label` with the label of this tool. `is_proved`: the server answered a call of it with a good result.
pub(super) fn with_label_of<T>(
    name: &str,
    is_proved: bool,
    use_label: impl FnOnce(&str) -> T,
) -> T {
    let name = cut(name);
    // The lock ends with this statement, because `use_label` takes the lock of a metric.
    let is_label = NAMES.lock().take(&name, is_proved);
    use_label(if is_label { &name } else { OTHER })
}

fn cut(name: &str) -> Cow<'_, str> {
    let end = name.char_indices().nth(CHARS_MAX).map(|(end, _)| end);
    printable(end.and_then(|end| name.get(..end)).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let mut names = ToolNames::new();
        for number in 0..2 * LISTED_MAX {
            names.list(&format!("listed-{number}"));
        }
        assert_eq!(names.listed.len(), LISTED_MAX);
        let mut take = |kind: &str, number: usize| names.take(&format!("{kind}-{number}"), false);
        let taken = |is_taken: &mut dyn FnMut(usize) -> bool| {
            (0..LISTED_MAX).filter(|number| is_taken(*number)).count()
        };
        assert_eq!(taken(&mut |number| take("invented", number)), UNPROVED_MAX);
        assert_eq!(taken(&mut |number| take("listed", number)), PROVED_MAX);
        // What was a label stays one.
        assert!(take("invented", 0) && take("listed", 0));
        assert_eq!(cut(&"é".repeat(CHARS_MAX + 1)).chars().count(), CHARS_MAX);
    }

    /// The attack: a client calls tools that do not exist.
    #[test]
    fn names_of_no_tool_take_no_label_from_a_tool() {
        let mut names = ToolNames::new();
        assert!(names.take("fails", false) && !names.needs_proof("answered"));
        for number in 0..300 {
            names.take(&format!("invented-{number}"), false);
        }
        assert!(!names.take("answered", false) && names.needs_proof("answered"));
        assert!(names.take("answered", true) && !names.needs_proof("answered"));
        names.list("listed");
        assert!(!names.needs_proof("listed") && names.take("listed", false));
        assert!(names.take("fails", false) && !names.needs_proof("fails"));
        // A tool that is there gives its place to the next name.
        assert!(names.take("fails", true) && names.take("next", false));
    }

    #[test]
    fn a_label_is_printable() {
        assert_eq!(
            with_label("clears-\u{1b}[2J", str::to_owned),
            "clears-\u{fffd}[2J"
        );
    }
}
