//! The change log of one bucket: where a follower is in it, and whether it missed something.

use redis::streams::{StreamId, StreamRangeReply, StreamReadReply};
use redis::{Cmd, from_redis_value_ref};

use super::super::{Change, ChangeEvent, LOG_LENGTH};
use crate::task::id::{Revision, TaskId};

/// The id of a log entry: milliseconds and a count within them, in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position(u64, u64);

impl Position {
    fn parse(text: &str) -> Option<Self> {
        let (ms, count) = text.split_once('-')?;
        Some(Self(ms.parse().ok()?, count.parse().ok()?))
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

#[derive(Clone, Copy)]
pub(super) enum Edge {
    First,
    Last,
}

/// Asks for the first or last entry that is still in the log; [`position`] reads the answer.
pub(super) fn edge(log: &str, edge: Edge) -> Cmd {
    let (command, from, to) = match edge {
        Edge::First => ("XRANGE", "-", "+"),
        Edge::Last => ("XREVRANGE", "+", "-"),
    };
    let mut command = redis::cmd(command);
    command.arg(log).arg(from).arg(to).arg("COUNT").arg(1);
    command
}

pub(super) fn position(reply: &StreamRangeReply) -> Option<Position> {
    let entry = reply.ids.first()?;
    Position::parse(&entry.id)
}

/// What the log's ends, as they are now, mean to a follower.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) missed: bool,
    /// Where to go on.
    pub(super) from: Position,
}

/// `seen` is the last entry that surely was read without a gap, `last` where the follower is now.
pub(super) fn judge(ends: Option<(Position, Position)>, seen: Position, last: Position) -> Verdict {
    let Some((first, end)) = ends else {
        // Nothing was ever logged, or the log was lost with everything in it.
        return Verdict {
            missed: seen != Position::default(),
            from: Position::default(),
        };
    };
    if end < last {
        // A store that went back: its new entries may have smaller ids than ours.
        return Verdict {
            missed: true,
            from: end,
        };
    }
    Verdict {
        missed: seen < first && seen != Position::default(),
        from: last,
    }
}

/// The entries of an answer to XREAD: what they say and where they stand.
pub(super) fn entries(
    reply: Option<StreamReadReply>,
    last: Position,
) -> (Vec<ChangeEvent>, Position) {
    let mut last = last;
    let entries = reply
        .into_iter()
        .flat_map(|reply| reply.keys)
        .flat_map(|key| key.ids);
    let seen = entries.map(|entry| {
        last = Position::parse(&entry.id).unwrap_or(last);
        // An entry that is not ours says that something changed, not what.
        change(&entry).map_or(ChangeEvent::Missed, ChangeEvent::Changed)
    });
    (seen.collect(), last)
}

fn change(entry: &StreamId) -> Option<Change> {
    let field = |name| from_redis_value_ref::<String>(entry.map.get(name)?).ok();
    Some(Change {
        id: TaskId::parse(&field("i")?)?,
        revision: Revision(field("r")?.parse().ok()?),
    })
}

/// Entries in one answer. Less than a full answer cannot hide a gap, because the log is longer
/// than that.
pub(super) const COUNT: usize = LOG_LENGTH / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_told_of_a_gap_and_only_then() {
        let at = |ms| Position(ms, 0);
        let none = Position::default();
        let verdict = |missed, from| Verdict { missed, from };
        // Nothing there, nothing seen; then lost.
        assert_eq!(judge(None, none, none), verdict(false, none));
        assert_eq!(judge(None, at(5), at(5)), verdict(true, none));
        // In the middle, and from the beginning.
        assert_eq!(
            judge(Some((at(1), at(9))), at(5), at(5)),
            verdict(false, at(5))
        );
        assert_eq!(
            judge(Some((at(1), at(9))), none, none),
            verdict(false, none)
        );
        // Trimmed past us; gone back.
        assert_eq!(
            judge(Some((at(6), at(9))), at(5), at(9)),
            verdict(true, at(9))
        );
        assert_eq!(
            judge(Some((at(1), at(3))), at(5), at(5)),
            verdict(true, at(3))
        );
    }
}
