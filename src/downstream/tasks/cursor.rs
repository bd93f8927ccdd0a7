//! The cursor that names a place in a caller's list of tasks. Pure.

use crate::mcp::base64;
use crate::store::ListPlace;
use crate::task::id::TaskId;

/// Names the last task of a page.
pub(in crate::downstream) fn encode((expires_ms, id): ListPlace) -> String {
    let mut out = String::new();
    base64::encode(
        &[&expires_ms.to_be_bytes()[..], id.as_bytes()].concat(),
        &mut out,
    );
    out
}

/// `None`: raincheck made no such cursor.
pub(in crate::downstream) fn decode(cursor: &str) -> Option<ListPlace> {
    let bytes = base64::decode(cursor)?;
    let (expires_ms, id) = bytes.split_first_chunk::<8>()?;
    let id = TaskId::from_bytes(id.try_into().ok()?);
    Some((u64::from_be_bytes(*expires_ms), id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::in_order;

    #[test]
    fn a_cursor_names_the_task_behind_which_the_next_page_begins() {
        let [a, b, c] = [1, 2, 3].map(|byte| TaskId::from_bytes([byte; 16]));
        let listed = vec![(10, a), (30, b), (20, c), (20, a)];
        let all = [(30, b), (20, c), (20, a), (10, a)];
        assert_eq!(in_order(listed.clone(), None, 9), all);
        for (at, place) in all.into_iter().enumerate() {
            let after = decode(&encode(place));
            assert_eq!(after, Some(place));
            assert_eq!(in_order(listed.clone(), after, 9), all[at + 1..]);
        }
        for foreign in ["", "AAAA", "no cursor", &encode((1, a))[1..]] {
            assert_eq!(decode(foreign), None, "{foreign}");
        }
    }
}
