//! What every store keeps of tasks that have ended, and what is found of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use raincheck::store::history::{History, HistoryPage, HistoryQuery, HistoryTerms};
use raincheck::store::key_value::KeyValue;
use raincheck::store::patience::StorePatience;
use raincheck::store::{ENDED_LENGTH, HistoryEntry, Write};
use raincheck::task::history::{
    EndFilter, EndGroup, EndTimes, EndedTask, Period, PeriodEnds, ROWS, TaskFilter,
};
use raincheck::task::id::TaskId;
use raincheck::task::tool_pattern::ToolPattern;

use crate::rig::{Rig, conflict, done, update};

/// Commits that are under way at the same time.
const AT_ONCE: usize = 64;

const KEEP: Duration = Duration::from_hours(1);

fn entry(rig: &Rig, entry: impl Into<Bytes>) -> HistoryEntry {
    HistoryEntry {
        entry: entry.into(),
        expires_ms: rig.now_ms() + 3_600_000,
    }
}

pub(crate) async fn an_end_has_one_entry(rig: &Rig) {
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let end = Write {
        history: Some(entry(rig, "end")),
        ends: true,
        ..update(&create, 1, "ended")
    };
    let late = Write {
        history: Some(entry(rig, "late")),
        ..update(&create, 1, "late")
    };
    for _ in 0..2 {
        done(rig.store.commit(&end).await.unwrap());
    }
    conflict(rig.store.commit(&late).await.unwrap());
    let ended = rig.store.ended(&[]).await.unwrap();
    let ended: Vec<_> = ended.iter().map(|it| (it.id, &*it.entry)).collect();
    assert_eq!(ended, [(create.id, &b"end"[..])]);
}

pub(crate) async fn entries_come_in_order_behind_a_place(rig: &Rig) {
    // One task, so that all of it is in one bucket.
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let mut last = create;
    for (revision, text) in [(1, "a"), (2, "b"), (3, "c")] {
        last = Write {
            history: Some(entry(rig, text)),
            ..update(&last, revision, "x")
        };
        done(rig.store.commit(&last).await.unwrap());
    }
    let all = rig.store.ended(&[]).await.unwrap();
    let texts: Vec<_> = all.iter().map(|it| &*it.entry).collect();
    assert_eq!(texts, [b"a", b"b", b"c"]);
    let behind = rig.store.ended(&[all[0].place]).await.unwrap();
    assert_eq!(behind, all[1..]);
    assert!(rig.store.ended(&[all[2].place]).await.unwrap().is_empty());
}

pub(crate) async fn the_last_entries_stay(rig: &Rig) {
    let many = ENDED_LENGTH + 2_000;
    let creates = (0..many).map(|number| Write {
        history: Some(entry(rig, number.to_string())),
        ..rig.create()
    });
    let commits = stream::iter(creates)
        .map(async |write| done(rig.store.commit(&write).await.unwrap()))
        .buffer_unordered(AT_ONCE);
    commits.collect::<Vec<_>>().await;
    let ended = rig.store.ended(&[]).await.unwrap();
    // Redis removes entries by the hundred, in each of its buckets.
    assert!(
        (ENDED_LENGTH..many).contains(&ended.len()) || ended.len() == many && rig.is_spread(),
        "{}",
        ended.len()
    );
    let has = |number: usize| {
        ended
            .iter()
            .any(|it| *it.entry == *number.to_string().as_bytes())
    };
    assert!(has(many - 1) && (!has(0) || rig.is_spread()));
}

/// The history of a rig, as a replica has it.
struct Past<'a> {
    rig: &'a Rig,
    history: History,
}

impl<'a> Past<'a> {
    fn of(rig: &'a Rig, entries_max: usize) -> Self {
        let store = Arc::clone(&rig.store);
        let patience = StorePatience {
            read: Duration::from_secs(1),
            create: Duration::from_secs(1),
        };
        let kv = KeyValue::new(Arc::clone(&store), rig.clock(), patience);
        let terms = HistoryTerms {
            keep: KEEP,
            entries_max,
        };
        Self {
            rig,
            history: History::new(store, kv, terms),
        }
    }

    /// Ends a task `age_ms` ago.
    async fn ended(&self, tool: &'static str, age_ms: u64) -> EndedTask<'static> {
        let is_rare = tool == "rare";
        let write = self.rig.create();
        let ended = EndedTask {
            id: write.id,
            group: EndGroup {
                tool: tool.into(),
                caller: if is_rare { "bbbbbbbb" } else { "aaaaaaaa" }.into(),
                label: if is_rare { "bob" } else { "" }.into(),
                replica: if is_rare { "two" } else { "one" }.into(),
                outcome: if is_rare { "failed" } else { "completed" }.into(),
                reason: if is_rare { "owner_lost" } else { "" }.into(),
                effect: if is_rare { "unknown" } else { "" }.into(),
                code: None,
                cancelled_by: None,
            },
            times: EndTimes {
                ended_ms: self.rig.now_ms() - age_ms,
                took_ms: 5,
                ..EndTimes::default()
            },
        };
        let write = Write {
            history: Some(entry(self.rig, ended.encode())),
            ..write
        };
        done(self.rig.store.commit(&write).await.unwrap());
        ended
    }

    /// Ends tasks of which every hundredth is a rare one, the last one just now. Returns them in the order of the history.
    async fn ended_many(&self, count: u64) -> Vec<EndedTask<'static>> {
        let ending = stream::iter(0..count)
            .map(async |age_ms| {
                let tool = if age_ms % 100 == 7 { "rare" } else { "usual" };
                self.ended(tool, age_ms).await
            })
            .buffer_unordered(AT_ONCE);
        let mut ended: Vec<_> = ending.collect().await;
        ended.sort_by_key(|ended| std::cmp::Reverse(ended.place()));
        ended
    }

    async fn page(
        &self,
        filter: &TaskFilter,
        after: Option<(u64, TaskId)>,
        limit: usize,
    ) -> HistoryPage {
        let query = HistoryQuery {
            filter,
            checks_end: true,
            unacknowledged: false,
            after,
            limit,
            chunks_max: usize::MAX,
        };
        self.history.page(query).await.unwrap()
    }

    /// Checks what is counted of these entries, in steps that chunks fit into and in steps that they do not.
    async fn is_counted(&self, ended: &[EndedTask<'_>]) {
        for step_ms in [7, 300, 60_000] {
            let from_ms = (self.rig.now_ms() - 2_000) / step_ms * step_ms;
            let steps = 1 + usize::try_from(60_000 / step_ms).unwrap();
            let period = Period {
                from_ms,
                step_ms,
                steps,
            };
            let mut counted = PeriodEnds::new(period);
            for entry in ended {
                counted.count(entry);
            }
            let found = self.history.ends(period).await.unwrap();
            assert_eq!((found.ends, found.is_partial), (counted, false));
        }
    }

    /// All entries that pass, page by page.
    async fn all(&self, filter: &TaskFilter, limit: usize) -> Vec<EndedTask<'static>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.page(filter, after, limit).await;
            assert!(!page.is_partial);
            all.extend(page.entries);
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    }
}

pub(crate) async fn entries_are_found_before_and_after_they_are_put_together(rig: &Rig) {
    let past = Past::of(rig, usize::MAX);
    let count = 2 * ROWS as u64 + 100;
    let ended = past.ended_many(count).await;
    let rare: Vec<_> = ended
        .iter()
        .filter(|it| it.group.tool == "rare")
        .cloned()
        .collect();
    let any = TaskFilter::default();
    let end = |end: EndFilter| TaskFilter {
        end,
        ..TaskFilter::default()
    };
    let of_rare = [
        TaskFilter {
            tool: Some(ToolPattern::of("r*")),
            ..any.clone()
        },
        TaskFilter {
            caller: Some("bob".into()),
            ..any.clone()
        },
        TaskFilter {
            caller: Some("bbbbbbbb".into()),
            ..any.clone()
        },
        TaskFilter {
            replica: Some("two".into()),
            ..any.clone()
        },
        end(EndFilter {
            reason: Some("owner_lost"),
            ..EndFilter::default()
        }),
        end(EndFilter {
            effect: Some("unknown"),
            ..EndFilter::default()
        }),
        end(EndFilter {
            outcome: Some("failed"),
            ..EndFilter::default()
        }),
    ];
    for _ in 0..2 {
        assert_eq!(past.all(&any, 100).await, ended);
        for filter in &of_rare {
            assert_eq!(past.all(filter, 3).await, rare, "{filter:?}");
        }
        let id = ended[700].id.to_string();
        let by_id = TaskFilter {
            id: Some(id[..13].to_owned()),
            ..any.clone()
        };
        assert_eq!(past.all(&by_id, 9).await, ended[700..=700]);
        let none = TaskFilter {
            tool: Some(ToolPattern::of("none")),
            ..any.clone()
        };
        assert!(past.all(&none, 9).await.is_empty());
        past.is_counted(&ended).await;
        past.history.fold().await.unwrap();
        past.history.fold().await.unwrap();
    }
}

pub(crate) async fn two_replicas_put_entries_together_once(rig: &Rig) {
    let (one, other) = (Past::of(rig, usize::MAX), Past::of(rig, usize::MAX));
    let mut ended = one.ended_many(ROWS as u64).await;
    let both = tokio::join!(one.history.fold(), other.history.fold());
    both.0.and(both.1).unwrap();
    let more = one.ended_many(ROWS as u64).await;
    let both = tokio::join!(one.history.fold(), other.history.fold());
    both.0.and(both.1).unwrap();
    ended.extend(more);
    ended.sort_by_key(|ended| std::cmp::Reverse(ended.place()));
    assert_eq!(other.all(&TaskFilter::default(), 1000).await, ended);
    // No entry counts twice.
    let failures = ended
        .iter()
        .filter(|ended| ended.group.is_failure())
        .count();
    assert_eq!(other.history.unacknowledged().await.unwrap(), failures);
}

/// Entries that have expired leave their places to nobody.
pub(crate) async fn new_entries_come_behind_those_that_expired(rig: &Rig) {
    let past = Past::of(rig, usize::MAX);
    past.ended_many(ROWS as u64).await;
    past.history.fold().await.unwrap();
    let soon = rig.create();
    let expiring = Write {
        expires_ms: rig.now_ms() + 50,
        ..soon
    };
    done(rig.store.commit(&expiring).await.unwrap());
    rig.expire(expiring.id, KEEP + KEEP / 2).await;
    rig.store.beat(None, Duration::ZERO).await.unwrap();
    let ended = past.ended("usual", 0).await;
    let page = past.page(&TaskFilter::default(), None, 1).await;
    assert_eq!(page.entries, [ended]);
}

pub(crate) async fn old_entries_go(rig: &Rig) {
    let past = Past::of(rig, ROWS);
    // One that is too old already, and more than are kept.
    let hour = u64::try_from(KEEP.as_millis()).unwrap();
    let old = past.ended("usual", hour + 1).await;
    let any = TaskFilter::default();
    assert!(past.all(&any, 10).await.is_empty(), "{old:?}");
    past.ended_many(2 * ROWS as u64).await;
    past.history.fold().await.unwrap();
    let kept = past.all(&any, 1000).await.len();
    assert!((ROWS..2 * ROWS).contains(&kept), "{kept}");
}
