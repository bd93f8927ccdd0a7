//! The order of a caller's list of tasks, and the cursor that names a place in it. Pure.

use std::cmp::Reverse;

use crate::mcp::base64;
use crate::task::id::TaskId;

/// A place in the list: when the task expires, in milliseconds, and its id. Neither changes.
pub(in crate::downstream) type Position = (u64, TaskId);

/// The tasks behind that place. Those that expire last come first: of tasks with one retention, the newest.
pub(in crate::downstream) fn in_order(
    mut listed: Vec<Position>,
    after: Option<Position>,
) -> Vec<Position> {
    listed.retain(|place| after.is_none_or(|after| *place < after));
    listed.sort_unstable_by_key(|place| Reverse(*place));
    listed
}

/// Names the last task of a page.
pub(in crate::downstream) fn encode((expires_ms, id): Position) -> String {
    let mut out = String::new();
    base64::encode(
        &[&expires_ms.to_be_bytes()[..], id.as_bytes()].concat(),
        &mut out,
    );
    out
}

/// `None`: raincheck made no such cursor.
pub(in crate::downstream) fn decode(cursor: &str) -> Option<Position> {
    let bytes = base64::decode(cursor)?;
    let (expires_ms, id) = bytes.split_first_chunk::<8>()?;
    let id = TaskId::from_bytes(id.try_into().ok()?);
    Some((u64::from_be_bytes(*expires_ms), id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_names_the_task_behind_which_the_next_page_begins() {
        let [a, b, c] = [1, 2, 3].map(|byte| TaskId::from_bytes([byte; 16]));
        let listed = vec![(10, a), (30, b), (20, c), (20, a)];
        let all = [(30, b), (20, c), (20, a), (10, a)];
        assert_eq!(in_order(listed.clone(), None), all);
        for (at, place) in all.into_iter().enumerate() {
            let after = decode(&encode(place));
            assert_eq!(after, Some(place));
            assert_eq!(in_order(listed.clone(), after), all[at + 1..]);
        }
        for foreign in ["", "AAAA", "no cursor", &encode((1, a))[1..]] {
            assert_eq!(decode(foreign), None, "{foreign}");
        }
    }
}
