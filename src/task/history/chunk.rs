//! Entries that are kept together, and an index of them, by which a search leaves out the chunks that it need not read.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::entry::{EndGroup, EndTimes, EndedTask};
use crate::mcp::hex;
use crate::task::digest::Digest;
use crate::task::id::TaskId;

/// The number of entries of a chunk.
pub const ROWS: usize = 512;

/// The characters of a mark, by which an index knows an id or a caller: one that has another mark is not in the chunk.
const MARK: usize = 4;

/// Some entries, those that ended first at the front.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk<'a> {
    groups: Vec<EndGroup<'a>>,
    /// Each names its group by the place of it.
    rows: Vec<(TaskId, usize, EndTimes)>,
}

/// The index of a chunk.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkIndex {
    pub(super) tools: BTreeSet<Box<str>>,
    /// The marks of labels and of short hashes of callers, one after the other: there may be many, and each search reads them.
    callers: Box<str>,
    pub(super) replicas: BTreeSet<Box<str>>,
    /// Outcomes with their reasons and effects.
    pub(super) ends: BTreeSet<[Box<str>; 3]>,
    /// The first characters of each id, one after the other.
    ids: Box<str>,
}

impl<'a> Chunk<'a> {
    /// Puts entries together. They may be in any order.
    pub fn of(mut entries: Vec<EndedTask<'a>>) -> Self {
        entries.sort_unstable_by_key(EndedTask::place);
        let mut known: HashMap<EndGroup<'a>, usize> = HashMap::new();
        let mut chunk = Self::default();
        for EndedTask { id, group, times } in entries {
            let next = known.len();
            let at = *known.entry(group).or_insert_with_key(|group| {
                chunk.groups.push(group.clone());
                next
            });
            chunk.rows.push((id, at, times));
        }
        chunk
    }

    /// Reads a chunk. `None`: raincheck did not write it.
    pub fn decode(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The Unix milliseconds of the first end and of the last one.
    pub fn span_ms(&self) -> Option<(u64, u64)> {
        let ended_ms = |row: &(TaskId, usize, EndTimes)| row.2.ended_ms;
        let first = self.rows.first().map(ended_ms);
        first.zip(self.rows.last().map(ended_ms))
    }

    pub fn index(&self) -> ChunkIndex {
        let mut index = ChunkIndex::default();
        let mut callers: BTreeSet<&str> = BTreeSet::new();
        for group in &self.groups {
            index.tools.insert((*group.tool).into());
            callers.extend([&*group.caller, &*group.label]);
            index.replicas.insert((*group.replica).into());
            let end = [&group.outcome, &group.reason, &group.effect];
            index.ends.insert(end.map(|word| (**word).into()));
        }
        let callers = callers.into_iter().map(mark);
        index.callers = callers.collect::<String>().into();
        let mut ids = String::with_capacity(self.rows.len() * MARK);
        let mut buffer = TaskId::text_buffer();
        for (id, ..) in &self.rows {
            ids.extend(id.text(&mut buffer).chars().take(MARK));
        }
        index.ids = ids.into();
        index
    }

    /// The entries whose groups and rows are wanted.
    pub fn entries(
        &self,
        wants: impl Fn(&EndGroup<'a>) -> bool,
    ) -> impl Iterator<Item = EndedTask<'a>> {
        // Each group is looked at once, and it has many rows.
        let wanted: Vec<Option<&EndGroup<'a>>> = self
            .groups
            .iter()
            .map(|group| Some(group).filter(|group| wants(group)))
            .collect();
        self.rows.iter().filter_map(move |(id, at, times)| {
            let group = wanted.get(*at).copied().flatten()?;
            Some(EndedTask {
                id: *id,
                group: group.clone(),
                times: times.clone(),
            })
        })
    }
}

impl ChunkIndex {
    /// Reads an index. `None`: raincheck did not write it.
    pub fn decode(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns `true` if an id may begin like this, in lower case.
    pub(super) fn may_have_id(&self, beginning: &str) -> bool {
        beginning.get(..MARK).is_none_or(|id| has(&self.ids, id))
    }

    /// Returns `true` if there may be a caller with this label or short hash.
    pub(super) fn may_have_caller(&self, caller: &str) -> bool {
        has(&self.callers, &mark(caller))
    }
}

fn has(marks: &str, wanted: &str) -> bool {
    let (marks, _) = marks.as_bytes().as_chunks::<MARK>();
    marks.iter().any(|mark| mark == wanted.as_bytes())
}

fn mark(text: &str) -> String {
    let digest = Digest::of(&[text]);
    hex::encode(digest.as_bytes().first_chunk::<2>().unwrap_or(&[0; 2]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome, Task};

    fn ended(tool: &str, ended_ms: u64) -> EndedTask<'static> {
        let task = Task {
            id: TaskId::random(),
            name: tool.into(),
            updated_ms: ended_ms,
            outcome: Some(Outcome::Cancelled),
            ..task(Leg::Sent(1), true)
        };
        EndedTask::decode(task.id, &EndedTask::of(&task).unwrap().encode()).unwrap()
    }

    #[test]
    fn a_chunk_gives_back_what_was_put_in_and_its_index_knows_it() {
        let entries = [
            ended("b", 2_000_000),
            ended("a", 3_000_000),
            ended("b", 1_500_000),
        ];
        let chunk = Chunk::of(entries.to_vec());
        assert_eq!(chunk.span_ms(), Some((1_500_000, 3_000_000)));
        let index = ChunkIndex::decode(&chunk.index().encode()).unwrap();
        assert_eq!(index, chunk.index());
        let tools: Vec<&str> = index.tools.iter().map(|tool| &**tool).collect();
        assert_eq!(tools, ["a", "b"]);
        assert!(
            index
                .ends
                .contains(&["cancelled".into(), "".into(), "".into()])
        );
        for entry in &entries {
            assert!(index.may_have_id(&entry.id.to_string()));
            assert!(index.may_have_caller(&entry.group.caller));
        }
        assert!(!index.may_have_caller("somebody else"));
        let chunk = Chunk::decode(&chunk.encode()).unwrap();
        let [first, second, third] = entries;
        let all: Vec<_> = chunk.entries(|_| true).collect();
        assert_eq!(all, [third.clone(), first.clone(), second]);
        let of_b: Vec<_> = chunk.entries(|group| group.tool == "b").collect();
        assert_eq!(of_b, [third, first]);
        assert_eq!(Chunk::decode(b"[]"), None);
        assert_eq!(Chunk::of(Vec::new()).span_ms(), None);
    }
}
