//! Entries that are kept together, and an index of them, by which a search leaves out the chunks that it need not read.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::entry::{EndGroup, EndTimes, EndedTask};
use super::sums::EndSums;
use crate::mcp::hex;
use crate::task::digest::Digest;
use crate::task::id::TaskId;

/// The characters of a mark, by which an index knows an id or a caller: one that has another mark is not in the chunk.
const MARK: usize = 4;

/// The facts of a task that are its own.
type Row = (TaskId, EndTimes);

/// Some entries, by their groups.
#[derive(Debug, Default)]
pub struct Chunk<'a> {
    groups: Vec<(EndGroup<'a>, Vec<Row>)>,
}

/// A chunk as it is read. The rows of a group are decoded when they are wanted.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct EncodedChunk<'a> {
    #[serde(borrow)]
    groups: Vec<(EndGroup<'a>, &'a RawValue)>,
}

/// The index of a chunk.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkIndex<'a> {
    #[serde(borrow)]
    pub(super) tools: Vec<Word<'a>>,
    #[serde(borrow)]
    pub(super) replicas: Vec<Word<'a>>,
    /// Outcomes with their reasons and effects.
    #[serde(borrow)]
    pub(super) ends: Vec<[Word<'a>; 3]>,
    /// The marks of labels and of short hashes of callers, one after the other: there may be many, and each search reads them.
    #[serde(borrow)]
    callers: Cow<'a, str>,
    /// The first characters of each id, one after the other.
    #[serde(borrow)]
    ids: Cow<'a, str>,
}

/// A text that is not copied when it is read, because each search reads the indexes of many chunks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Word<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> Chunk<'a> {
    /// Puts entries together.
    pub fn of(entries: Vec<EndedTask<'a>>) -> Self {
        let mut known: HashMap<EndGroup<'a>, usize> = HashMap::new();
        let mut chunk = Self::default();
        for EndedTask { id, group, times } in entries {
            let next = known.len();
            let at = *known.entry(group).or_insert_with_key(|group| {
                chunk.groups.push((group.clone(), Vec::new()));
                next
            });
            if let Some((_, rows)) = chunk.groups.get_mut(at) {
                rows.push((id, times));
            }
        }
        chunk
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&self.groups).unwrap_or_default()
    }

    /// The Unix milliseconds of the first end and of the last one.
    pub fn span_ms(&self) -> Option<(u64, u64)> {
        let ended_ms = || self.rows().map(|(_, (_, times))| times.ended_ms);
        ended_ms().min().zip(ended_ms().max())
    }

    pub fn failures(&self) -> usize {
        let failures = self.groups.iter().filter(|(group, _)| group.is_failure());
        failures.map(|(_, rows)| rows.len()).sum()
    }

    pub fn sums(&self) -> EndSums {
        let mut sums = EndSums::default();
        for (group, (_, times)) in self.rows() {
            sums.count(group, times);
        }
        sums
    }

    pub fn index(&self) -> ChunkIndex<'_> {
        let groups = || self.groups.iter().map(|(group, _)| group);
        let callers = groups().flat_map(|group| [&*group.caller, &*group.label]);
        let mut buffer = TaskId::text_buffer();
        let ids = self.rows().fold(String::new(), |mut ids, (_, (id, _))| {
            ids.extend(id.text(&mut buffer).chars().take(MARK));
            ids
        });
        ChunkIndex {
            tools: once_each(groups().map(|group| Word(Cow::Borrowed(&*group.tool)))),
            replicas: once_each(groups().map(|group| Word(Cow::Borrowed(&*group.replica)))),
            ends: once_each(groups().map(|group| {
                let end = [&group.outcome, &group.reason, &group.effect];
                end.map(|word| Word(Cow::Borrowed(&**word)))
            })),
            callers: once_each(callers).into_iter().map(mark).collect(),
            ids: ids.into(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&EndGroup<'a>, &Row)> {
        let groups = self.groups.iter();
        groups.flat_map(|(group, rows)| rows.iter().map(move |row| (group, row)))
    }
}

impl<'a> EncodedChunk<'a> {
    /// Reads a chunk. `None`: raincheck did not write it.
    pub fn decode(value: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// The entries whose groups are wanted, in no order.
    pub fn entries(
        &self,
        wants: impl Fn(&EndGroup<'a>) -> bool,
    ) -> impl Iterator<Item = EndedTask<'a>> {
        let groups = self.groups.iter();
        let wanted = groups.filter(move |(group, _)| wants(group));
        wanted.flat_map(|(group, rows)| {
            let rows: Vec<Row> = serde_json::from_str(rows.get()).unwrap_or_default();
            rows.into_iter().map(|(id, times)| EndedTask {
                id,
                group: group.clone(),
                times,
            })
        })
    }
}

impl<'a> ChunkIndex<'a> {
    /// Reads an index. `None`: raincheck did not write it.
    pub fn decode(value: &'a [u8]) -> Option<Self> {
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

fn once_each<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.collect::<BTreeSet<T>>().into_iter().collect()
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
        assert_eq!(chunk.failures(), 0);
        let index = chunk.index().encode();
        let index = ChunkIndex::decode(&index).unwrap();
        assert_eq!(index, chunk.index());
        let tools: Vec<&str> = index.tools.iter().map(|tool| &*tool.0).collect();
        assert_eq!(tools, ["a", "b"]);
        let end = ["cancelled", "", ""].map(|word| Word(word.into()));
        assert_eq!(index.ends, [end]);
        for entry in &entries {
            assert!(index.may_have_id(&entry.id.to_string()));
            assert!(index.may_have_caller(&entry.group.caller));
        }
        assert!(!index.may_have_caller("somebody else"));
        let encoded = chunk.encode();
        let chunk = EncodedChunk::decode(&encoded).unwrap();
        let [first, second, third] = entries;
        let mut all: Vec<_> = chunk.entries(|_| true).collect();
        all.sort_unstable_by_key(EndedTask::place);
        assert_eq!(all, [third.clone(), first.clone(), second]);
        let of_b: Vec<_> = chunk.entries(|group| group.tool == "b").collect();
        assert_eq!(of_b, [first, third]);
        assert!(EncodedChunk::decode(b"{}").is_none());
        assert_eq!(Chunk::of(Vec::new()).span_ms(), None);
    }
}
