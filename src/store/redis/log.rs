//! The change log of one bucket: the position of a follower, and whether it missed entries.

use redis::streams::StreamRangeReply;
use redis::{Cmd, Value};

use super::super::{ChangeEvent, ChangedTask, LOG_LENGTH};
use crate::task::id::{Revision, TaskId};

/// The id of a log entry: milliseconds and a count within them, in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct LogPosition(u64, u64);

impl LogPosition {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (ms, count) = text.split_once('-')?;
        Some(Self(ms.parse().ok()?, count.parse().ok()?))
    }
}

impl From<(u64, u64)> for LogPosition {
    fn from((ms, count): (u64, u64)) -> Self {
        Self(ms, count)
    }
}

impl From<LogPosition> for (u64, u64) {
    fn from(LogPosition(ms, count): LogPosition) -> Self {
        (ms, count)
    }
}

impl std::fmt::Display for LogPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

#[derive(Clone, Copy)]
pub(super) enum Edge {
    First,
    Last,
}

/// The command for the first or the last entry in the log. [`position`] reads the answer.
pub(super) fn edge(log: &str, edge: Edge) -> Cmd {
    let (command, from, to) = match edge {
        Edge::First => ("XRANGE", "-", "+"),
        Edge::Last => ("XREVRANGE", "+", "-"),
    };
    let mut command = redis::cmd(command);
    command.arg(log).arg(from).arg(to).arg("COUNT").arg(1);
    command
}

pub(super) fn position(reply: &StreamRangeReply) -> Option<LogPosition> {
    let entry = reply.ids.first()?;
    LogPosition::parse(&entry.id)
}

/// The result of [`check_gap`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GapCheck {
    pub(super) missed: bool,
    /// The position to continue from.
    pub(super) from: LogPosition,
}

/// Checks whether a follower missed entries, by the current ends of the log. `seen` is the last entry that was surely
/// read without a gap; `last` is the follower's position.
pub(super) fn check_gap(
    ends: Option<(LogPosition, LogPosition)>,
    seen: LogPosition,
    last: LogPosition,
) -> GapCheck {
    let Some((first, end)) = ends else {
        // Nothing was ever logged, or the log was lost with everything in it.
        return GapCheck {
            // A follower that has seen no entry cannot have lost one.
            missed: seen != LogPosition::default(),
            from: LogPosition::default(),
        };
    };
    if end < last {
        // The store went back to an older copy, so new entries may have smaller ids than `last`.
        return GapCheck {
            missed: true,
            from: end,
        };
    }
    GapCheck {
        missed: seen < first && seen != LogPosition::default(),
        from: last,
    }
}

/// The changes in an answer to XREAD of one log, and the position of the last one. `None`: the answer has another shape.
///
/// Read as it came, because the library's own reading copies each entry twice, and every commit of every replica passes
/// here.
pub(super) fn entries(reply: &Value, last: LogPosition) -> Option<(Vec<ChangeEvent>, LogPosition)> {
    let entries = if *reply == Value::Nil {
        &[]
    } else if let Value::Map(logs) = reply {
        // Where the operator asked for RESP3.
        let (_, entries) = logs.first()?;
        list(entries)?
    } else {
        let log = list(reply)?.first()?;
        list(list(log)?.get(1)?)?
    };
    let mut last = last;
    let seen = entries.iter().map(|entry| {
        let entry = list(entry).unwrap_or_default();
        let position = entry.first().and_then(text).and_then(LogPosition::parse);
        last = position.unwrap_or(last);
        // An unreadable entry tells that something changed, but not what.
        let change = entry.get(1).and_then(change);
        change.map_or(ChangeEvent::Missed, ChangeEvent::Changed)
    });
    Some((seen.collect(), last))
}

fn list(value: &Value) -> Option<&[Value]> {
    if let Value::Array(values) = value {
        Some(values)
    } else {
        None
    }
}

fn text(value: &Value) -> Option<&str> {
    if let Value::BulkString(bytes) = value {
        std::str::from_utf8(bytes).ok()
    } else {
        None
    }
}

fn change(fields: &Value) -> Option<ChangedTask> {
    let (pairs, _) = list(fields)?.as_chunks::<2>();
    let field = |name| {
        let pair = pairs.iter().find(|[key, _]| text(key) == Some(name));
        pair.and_then(|[_, value]| text(value))
    };
    Some(ChangedTask {
        id: TaskId::parse(field("i")?)?,
        revision: Revision(field("r")?.parse().ok()?),
    })
}

/// The time that a log with nothing but notifications stays. Followers read an entry within seconds.
pub(super) const TOLD_MS: u64 = 3_600_000;

/// The most entries in one answer. An answer that is not full cannot hide a gap, because the log is longer than this.
pub(super) const COUNT: usize = LOG_LENGTH / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_told_of_a_gap_and_only_then() {
        let at = |ms| LogPosition(ms, 0);
        let none = LogPosition::default();
        let verdict = |missed, from| GapCheck { missed, from };
        // Nothing there, nothing seen; then lost.
        assert_eq!(check_gap(None, none, none), verdict(false, none));
        assert_eq!(check_gap(None, at(5), at(5)), verdict(true, none));
        // In the middle, and from the beginning.
        assert_eq!(
            check_gap(Some((at(1), at(9))), at(5), at(5)),
            verdict(false, at(5))
        );
        assert_eq!(
            check_gap(Some((at(1), at(9))), none, none),
            verdict(false, none)
        );
        // Trimmed past us; gone back.
        assert_eq!(
            check_gap(Some((at(6), at(9))), at(5), at(9)),
            verdict(true, at(9))
        );
        assert_eq!(
            check_gap(Some((at(1), at(3))), at(5), at(5)),
            verdict(true, at(3))
        );
    }

    fn entry(position: &str, fields: &[&str]) -> Value {
        let bulk = |text: &str| Value::BulkString(text.into());
        let fields = fields.iter().map(|field| bulk(field)).collect();
        Value::Array(vec![bulk(position), Value::Array(fields)])
    }

    #[test]
    fn entries_are_read_in_both_protocols() {
        let id = TaskId::random();
        let told = id.to_string();
        let told_entries = Value::Array(vec![
            entry("5-0", &["i", &told, "r", "7"]),
            entry("5-1", &["i", "no id", "r", "7"]),
            entry("6-0", &["later", "x", "r", "8", "i", &told]),
        ]);
        let changed = |revision| {
            let revision = Revision(revision);
            ChangeEvent::Changed(ChangedTask { id, revision })
        };
        let expected = vec![changed(7), ChangeEvent::Missed, changed(8)];
        let log = Value::BulkString("log".into());
        let second = Value::Array(vec![Value::Array(vec![log.clone(), told_entries.clone()])]);
        for reply in [second, Value::Map(vec![(log.clone(), told_entries)])] {
            let read = entries(&reply, LogPosition(1, 0));
            assert_eq!(read, Some((expected.clone(), LogPosition(6, 0))));
        }
        let at = LogPosition(5, 3);
        assert_eq!(entries(&Value::Nil, at), Some((Vec::new(), at)));
        assert_eq!(entries(&Value::Okay, at), None);
        let two = Value::Array(vec![log.clone(), log]);
        assert_eq!(entries(&two, at), None);
    }
}
