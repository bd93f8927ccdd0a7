//! The real thing under the same histories: the ledger, the machine and a store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::base::clock::{Clock, Manual, System};
use raincheck::mcp::error::{Failure, Reason, SideEffect};
use raincheck::store::Store;
use raincheck::store::ledger::{ApplyError, Ledger, Loaded};
use raincheck::store::patience::StorePatience;
use raincheck::task::cancelled_by::CancelledBy;
use raincheck::task::id::{Caller, Fence, Incarnation, TaskId};
use raincheck::task::input_rule::{AnsweredBy, OnInputTimeout};
use raincheck::task::last_news::LastNews;
use raincheck::task::machine::{Effect, OwnerEvent, Rejected, TakeoverMode, TaskEvent};
use raincheck::task::policy::OnOwnerLost;
use raincheck::task::progress::Progress;
use raincheck::task::question::QuestionStage;
use raincheck::task::resume_point::ResumePoint;
use raincheck::task::state::{self, Outcome, Payload, Reach};
use serde_json::value::RawValue;

use crate::faulty::Faulty;
use crate::reference::{self, End, LIFE, Model, Op, REPLICAS, Transition};

/// Above what a record holds itself.
const LARGE: usize = 20_000;

const CLIENT: CancelledBy = CancelledBy::Client;

/// One history on one store.
pub(crate) struct Subject {
    store: Arc<Faulty>,
    ledger: Ledger,
    clock: Arc<Manual>,
    replicas: [Incarnation; REPLICAS],
    tasks: Vec<Known>,
}

/// A task as its users hold it.
struct Known {
    now: Loaded,
    /// The task as it was loaded a while ago.
    stale: Loaded,
}

fn resumable() -> OwnerEvent {
    let point = ResumePoint {
        sealed: "sealed".into(),
        needs_client: false,
    };
    OwnerEvent::Resumable { point, job: None }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

impl Subject {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let store = Faulty::new(store);
        // Close to the real time, by which Redis expires; turned ahead by minutes at most.
        let clock = Arc::new(Manual::at(System.now_ms()));
        let patience = StorePatience {
            read: Duration::from_secs(5),
            create: Duration::from_secs(5),
        };
        let ledger = Ledger::new(
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::clone(&clock) as Arc<dyn Clock>,
            patience,
        );
        Self {
            store,
            ledger,
            clock,
            replicas: ["a", "b"].map(Incarnation::new),
            tasks: Vec::new(),
        }
    }

    pub(crate) async fn apply(&mut self, model: &Model, transition: Transition) {
        match transition {
            Transition::Create { announced, safe } => self.create(announced, safe).await,
            Transition::Wait(seconds) => self.clock.advance(Duration::from_secs(seconds)),
            Transition::On {
                task,
                op,
                stale,
                fault,
            } => {
                self.store.set(fault);
                let verdict = self.on(task, &op, stale).await;
                self.store.set(reference::Fault::None);
                assert_eq!(verdict, model.last, "{op:?}");
                same(&self.tasks[task].now, &model.tasks[task]);
            }
        }
    }

    async fn create(&mut self, announced: bool, safe: bool) {
        let task = self.new_task(announced, safe);
        let request = Bytes::from_static(b"request");
        let now = self.ledger.create(task, Some(request)).await.unwrap();
        let stale = now.clone();
        self.tasks.push(Known { now, stale });
    }

    async fn on(&mut self, task: usize, op: &Op, stale: bool) -> reference::Verdict {
        let event = self.event(task, op).await;
        let known = &self.tasks[task];
        let from = if stale { &known.stale } else { &known.now };
        let mut applied = self.ledger.apply(from, event.clone()).await;
        if stale && matches!(applied, Err(ApplyError::Rejected(..))) {
            // What an old view refuses was not asked of the store: whoever holds it reads anew.
            applied = self.ledger.apply(&known.now, event).await;
        }
        let (verdict, latest) = match applied {
            Ok((loaded, effect)) => (Ok(effect.map(word)), loaded),
            Err(ApplyError::Rejected(why, latest)) => (Err(refusal(why)), *latest),
            Err(ApplyError::Gone) => panic!("the record is gone"),
            Err(ApplyError::Store(error)) => panic!("{error}"),
        };
        let known = &mut self.tasks[task];
        known.stale = std::mem::replace(&mut known.now, latest);
        verdict
    }

    async fn event(&self, task: usize, op: &Op) -> TaskEvent {
        let now = &self.tasks[task].now.task;
        let owner = |event| TaskEvent::Owner(now.fence, event);
        let ended = |outcome| {
            owner(OwnerEvent::Ended {
                outcome,
                message: None,
                last: LastNews::default(),
            })
        };
        let claimed = |by: &usize, takeover| TaskEvent::Claimed {
            fence: now.fence,
            by: self.replicas[*by].clone(),
            reach: Reach::Shared,
            takeover,
        };
        let request = || raw(r#"{"method":"elicitation/create","params":{}}"#);
        match op {
            Op::Ask(name) => owner(OwnerEvent::Asked {
                origin: name.to_string().into(),
                request: request(),
            }),
            Op::Round(asked) => owner(OwnerEvent::RoundAsked {
                requests: (0..*asked)
                    .map(|name| (format!("m{name}").into(), request()))
                    .collect(),
                request_state: Some("state".into()),
            }),
            Op::Answer { which, by, waits } => TaskEvent::Answered {
                answers: self.keys(task, *which),
                by: self.replicas[*by].clone(),
                waits: *waits,
                from: AnsweredBy::Client,
            },
            Op::Deliver => {
                let next = now.undelivered().next();
                owner(OwnerEvent::Delivered {
                    key: next.map_or_else(|| "none".into(), |(q, _)| q.key.clone()),
                })
            }
            Op::Progress(progress) => owner(OwnerEvent::Progressed {
                message: Some("on its way".into()),
                progress: Some(Progress {
                    progress: f64::from(*progress),
                    total: None,
                }),
                resume: None,
                messages: Vec::new(),
            }),
            Op::Finish { large } => ended(Outcome::Completed(self.payload(now, *large).await)),
            Op::Fail => ended(Outcome::Failed(raw(r#"{"code":1,"message":"no"}"#))),
            Op::Cancel => TaskEvent::Cancel { by: CLIENT },
            Op::Tick => TaskEvent::Tick,
            Op::Announce => TaskEvent::Announced,
            Op::Resumable => owner(resumable()),
            Op::Release => owner(OwnerEvent::Released),
            Op::Repeat => owner(OwnerEvent::Repeated),
            Op::Resume { by } => claimed(by, TakeoverMode::Resume),
            Op::Dispatch { by } => claimed(by, TakeoverMode::Dispatch),
            Op::Queue { by } => claimed(by, TakeoverMode::Queue),
            Op::Turn => owner(OwnerEvent::Dispatched),
            Op::Abandon => TaskEvent::Abandoned {
                fence: now.fence,
                failure: Failure::new(Reason::OwnerLost, SideEffect::Unknown),
            },
            Op::Told => owner(OwnerEvent::Told),
            Op::Late => TaskEvent::Owner(Fence(now.fence.0 - 1), OwnerEvent::Released),
        }
    }

    /// A large result is kept before the commit that names it.
    async fn payload(&self, task: &state::Task, large: bool) -> Payload {
        let result = result(large);
        if !large {
            return Payload::Inline(raw(&result));
        }
        let kept = Bytes::from(result);
        let bytes = kept.len() as u64;
        self.ledger.keep(task, task.fence, kept).await.unwrap();
        Payload::Kept {
            fence: task.fence,
            bytes,
            is_error: false,
        }
    }

    fn keys(
        &self,
        task: usize,
        which: reference::Which,
    ) -> std::collections::BTreeMap<Box<str>, Box<RawValue>> {
        let now = &self.tasks[task].now.task;
        let at = |open: bool| {
            let of_stage = now
                .questions
                .iter()
                .filter(move |q| matches!(q.stage, QuestionStage::Open(_)) == open);
            of_stage.map(|q| q.key.clone())
        };
        let keys: Vec<Box<str>> = match which {
            reference::Which::First => at(true).take(1).collect(),
            reference::Which::All => at(true).collect(),
            reference::Which::Unknown => vec!["nobody".into()],
            reference::Which::Again => at(false).collect(),
        };
        let answer = || raw(r#"{"action":"accept"}"#);
        keys.into_iter().map(|key| (key, answer())).collect()
    }

    fn new_task(&self, announced: bool, safe: bool) -> state::Task {
        state::Task {
            announced,
            owner: Some(self.replicas[0].clone()),
            on_owner_lost: if safe {
                OnOwnerLost::Rerun
            } else {
                OnOwnerLost::Resume
            },
            ..new_task(self.clock.now_ms())
        }
    }

    /// What the store itself says at the end of a history: the same, and nothing else.
    pub(crate) async fn check(&self, model: &Model) {
        for (known, expected) in self.tasks.iter().zip(&model.tasks) {
            let id = known.now.task.id;
            let stored = self.ledger.load(id).await.unwrap().unwrap();
            same(&stored, expected);
            let kept = self.ledger.load_kept(&stored.task).await.unwrap();
            let is_large = matches!(expected.end, Some(End::Completed { large: true, .. }));
            assert_eq!(kept.is_some(), is_large);
            assert!(kept.is_none_or(|kept| kept == result(true)));
            let request = self.ledger.load_request(id).await.unwrap();
            assert_eq!(request.as_deref(), Some(&b"request"[..]));
        }
        for (number, replica) in self.replicas.iter().enumerate() {
            let indexed: BTreeSet<TaskId> = self
                .store
                .indexed(replica)
                .await
                .unwrap()
                .into_iter()
                .collect();
            let expected = self.ids(model, |task| task.indexed_for() == Some(number));
            assert_eq!(indexed, expected, "the index of replica {number}");
        }
        let ours: BTreeSet<TaskId> = self.tasks.iter().map(|known| known.now.task.id).collect();
        // Histories share a store: whatever others left there is theirs.
        let due = self.store.due(u64::MAX >> 12, 1_000_000).await.unwrap();
        let due: BTreeSet<TaskId> = due.into_iter().filter(|id| ours.contains(id)).collect();
        assert_eq!(
            due,
            self.ids(model, |task| task.end.is_none()),
            "the due index"
        );
    }

    /// Takes everything off the shared indexes, so that the next histories are not slower.
    pub(crate) async fn clean(&self) {
        for known in &self.tasks {
            let id = known.now.task.id;
            for replica in &self.replicas {
                self.store.forget(id, Some(replica)).await.unwrap();
            }
        }
    }

    pub(crate) fn ids(
        &self,
        model: &Model,
        wanted: impl Fn(&reference::Task) -> bool,
    ) -> BTreeSet<TaskId> {
        let tasks = self.tasks.iter().zip(&model.tasks);
        tasks
            .filter(|(_, expected)| wanted(expected))
            .map(|(known, _)| known.now.task.id)
            .collect()
    }
}

fn result(large: bool) -> String {
    let text = "x".repeat(if large { LARGE } else { 3 });
    format!(r#"{{"content":[],"text":"{text}"}}"#)
}

#[track_caller]
fn same(real: &Loaded, expected: &reference::Task) {
    let task = &real.task;
    let context = || format!("{task:#?}\n{expected:#?}");
    assert_eq!(task.status().word(), expected.status(), "{}", context());
    assert_eq!(real.version.revision.0, expected.revision, "{}", context());
    assert_eq!(task.fence.0, expected.fence, "{}", context());
    assert_eq!(task.announced, expected.announced, "{}", context());
    assert_eq!(
        task.owner.is_some(),
        expected.owner.is_some(),
        "{}",
        context()
    );
    assert_eq!(task.must_tell, expected.untold, "{}", context());
    assert_eq!(task.resume.is_some(), expected.resumable, "{}", context());
    assert_eq!(task.released, expected.released, "{}", context());
    let leg = match expected.leg {
        // A parked leg counts the dispatches before it.
        reference::Leg::Queued => state::Leg::Queued,
        reference::Leg::Parked => state::Leg::Parked(expected.dispatches),
        reference::Leg::Sent => state::Leg::Sent(expected.dispatches),
    };
    assert_eq!(task.leg, leg, "{}", context());
    let stages: Vec<_> = task
        .questions
        .iter()
        .map(|q| (q.key.to_string(), stage(&q.stage)))
        .collect();
    let expected_stages: Vec<_> = expected
        .questions
        .iter()
        .map(|q| (q.key.clone(), q.stage))
        .collect();
    assert_eq!(stages, expected_stages, "{}", context());
    if let (Some(Outcome::Completed(Payload::Kept { fence, .. })), Some(end)) =
        (&task.outcome, expected.end)
    {
        let large = true;
        assert_eq!(
            end,
            End::Completed {
                large,
                fence: fence.0
            },
            "{}",
            context()
        );
    }
}

fn stage(stage: &QuestionStage) -> reference::Stage {
    match stage {
        QuestionStage::Open(_) => reference::Stage::Open,
        QuestionStage::Answered(_) => reference::Stage::Answered,
        QuestionStage::Delivered(_) => reference::Stage::Delivered,
        QuestionStage::Withdrawn => reference::Stage::Withdrawn,
    }
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Deliver => "deliver",
        Effect::Dispatch => "dispatch",
        Effect::Resume => "resume",
        Effect::CancelUpstream => "tell",
    }
}

fn refusal(why: Rejected) -> &'static str {
    match why {
        Rejected::Ended => "ended",
        Rejected::NotOwner => "not owner",
        Rejected::Unchanged => "unchanged",
        Rejected::TooManyQuestions => "too many",
        Rejected::OutOfTurn => "out of turn",
    }
}

/// A call that was just sent, and of which its client heard.
pub(crate) fn new_task(now_ms: u64) -> state::Task {
    state::Task {
        id: TaskId::random(),
        caller: Caller::from_bytes([1; 16]),
        label: None,
        method: "tools/call".into(),
        name: "tool".into(),
        created_ms: now_ms,
        began_ms: None,
        updated_ms: now_ms,
        deadline_ms: now_ms + LIFE * 1_000,
        ttl_ms: 3_600_000,
        poll_interval_ms: 1_000,
        input_timeout_ms: None,
        on_input_timeout: OnInputTimeout::Fail,
        input_reminder_ms: None,
        announced: true,
        listed: false,
        on_disconnect: raincheck::task::on_disconnect::OnDisconnect::Cancel,
        digest: None,
        owner: Some(Incarnation::new("a")),
        fence: Fence(1),
        reach: Reach::Shared,
        on_owner_lost: OnOwnerLost::Resume,
        attempts: 0,
        released: false,
        leg: state::Leg::Sent(1),
        sent_ms: Some(now_ms),
        input_wait_ms: 0,
        questions: Vec::new(),
        round: 0,
        resume: None,
        job: None,
        request_state: None,
        status_message: None,
        progress: None,
        messages: Vec::new(),
        outcome: None,
        cancelled_by: None,
        must_tell: false,
        log: None,
        ticket: None,
        trace: None,
        related: Vec::new(),
        notices: Vec::new(),
    }
}
