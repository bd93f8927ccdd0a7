//! What must be true of tasks, said a second time and in few words: no code of the machine is used
//! here. A task is what a client, an owner and a finder can tell apart.
#![expect(
    clippy::struct_excessive_bools,
    clippy::wildcard_enum_match_arm,
    reason = "a model says what is so, and as briefly as it can"
)]

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

/// Tasks of one history, and replicas.
const TASKS_MAX: usize = 3;
pub(crate) const REPLICAS: usize = 2;

/// What happens, and to which task.
#[derive(Debug, Clone)]
pub(crate) enum Transition {
    Create {
        announced: bool,
        safe: bool,
    },
    On {
        task: usize,
        op: Op,
        stale: bool,
        fault: Fault,
    },
    /// So many seconds pass.
    Wait(u64),
}

/// What the store does to the write of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It is lost before the store saw it.
    Before,
    /// It happens, and its answer is lost.
    After,
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Ask(u8),
    Round(usize),
    Answer {
        which: Which,
        by: usize,
        waits: bool,
    },
    Deliver,
    Progress(u8),
    Finish {
        large: bool,
    },
    Fail,
    Cancel,
    Tick,
    Announce,
    Resumable,
    Release,
    Repeat,
    Resume {
        by: usize,
    },
    Dispatch {
        by: usize,
    },
    Queue {
        by: usize,
    },
    /// The leg that waited has its turn.
    Turn,
    Abandon,
    Told,
    /// An owner of before.
    Late,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    First,
    All,
    Unknown,
    /// One that was answered before.
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leg {
    Queued,
    Sent,
    Parked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    Answered,
    Delivered,
    Withdrawn,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) key: String,
    /// What the server calls it, while the run that asked goes on.
    origin: Option<String>,
    pub(crate) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Completed { large: bool, fence: u64 },
    Failed,
    Cancelled,
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) announced: bool,
    pub(crate) safe: bool,
    pub(crate) owner: Option<usize>,
    pub(crate) fence: u64,
    pub(crate) leg: Leg,
    pub(crate) dispatches: u32,
    pub(crate) questions: Vec<Question>,
    round: usize,
    progress: Option<u8>,
    pub(crate) resumable: bool,
    pub(crate) released: bool,
    attempts: u32,
    pub(crate) end: Option<End>,
    pub(crate) untold: bool,
    pub(crate) revision: u64,
    pub(crate) overdue_at: u64,
}

/// What became of a transition: what must be done next, or why nothing changed.
pub(crate) type Verdict = Result<Option<&'static str>, &'static str>;

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) tasks: Vec<Task>,
    /// Seconds since the history began.
    pub(crate) now: u64,
    pub(crate) last: Verdict,
}

/// Every task is overdue so many seconds after its creation.
pub(crate) const LIFE: u64 = 60;

impl Task {
    fn new(announced: bool, safe: bool, now: u64) -> Self {
        Self {
            announced,
            safe,
            owner: Some(0),
            fence: 1,
            leg: Leg::Sent,
            dispatches: 1,
            questions: Vec::new(),
            round: 0,
            progress: None,
            resumable: false,
            released: false,
            attempts: 0,
            end: None,
            untold: false,
            revision: 1,
            overdue_at: now + LIFE,
        }
    }

    pub(crate) fn status(&self) -> &'static str {
        match self.end {
            Some(End::Completed { .. }) => "completed",
            Some(End::Failed) => "failed",
            Some(End::Cancelled) => "cancelled",
            None if self.at(Stage::Open).next().is_some() => "input_required",
            None => "working",
        }
    }

    /// The incarnation whose index names the task, because it must still do something.
    pub(crate) fn indexed_for(&self) -> Option<usize> {
        self.owner.filter(|_| self.end.is_none() || self.untold)
    }

    pub(crate) fn at(&self, stage: Stage) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(move |q| q.stage == stage)
    }

    /// The keys that a client would answer.
    pub(crate) fn keys(&self, which: Which) -> Vec<String> {
        let keys = |stage| self.at(stage).map(|q: &Question| q.key.clone());
        match which {
            Which::First => keys(Stage::Open).take(1).collect(),
            Which::All => keys(Stage::Open).collect(),
            Which::Unknown => vec!["nobody".into()],
            Which::Again => keys(Stage::Delivered)
                .chain(keys(Stage::Answered))
                .collect(),
        }
    }

    fn is_owned(&self) -> Result<(), &'static str> {
        match () {
            () if self.end.is_some() => Err("ended"),
            () if self.owner.is_none() || self.released => Err("not owner"),
            () => Ok(()),
        }
    }

    fn end(&mut self, end: End, untold: bool) -> Option<&'static str> {
        self.end = Some(end);
        self.questions.retain(|q| q.stage == Stage::Delivered);
        self.untold = untold && self.owner.is_some() && self.leg == Leg::Sent;
        self.resumable &= self.untold;
        self.untold.then_some("tell")
    }

    fn again(&mut self) -> &'static str {
        self.queue();
        self.send()
    }

    fn send(&mut self) -> &'static str {
        self.leg = Leg::Sent;
        self.dispatches += 1;
        "dispatch"
    }

    fn queue(&mut self) {
        self.attempts += u32::from(self.leg != Leg::Queued);
        self.leg = Leg::Queued;
        for question in &mut self.questions {
            // A modern leg goes out again with its answers.
            if self.round > 0 && question.stage == Stage::Answered {
                continue;
            }
            question.origin = None;
            question.stage = match question.stage {
                Stage::Open | Stage::Withdrawn => Stage::Withdrawn,
                Stage::Answered | Stage::Delivered => Stage::Delivered,
            };
        }
        self.resumable = false;
        self.progress = None;
    }

    pub(crate) fn apply(&mut self, op: &Op, now: u64) -> Verdict {
        let before = self.clone();
        let verdict = self.decide(op, now);
        match verdict {
            Ok(_) => self.revision += 1,
            Err(_) => *self = before,
        }
        verdict
    }

    fn decide(&mut self, op: &Op, now: u64) -> Verdict {
        match op {
            Op::Late => Err("not owner"),
            Op::Told if self.untold => {
                (self.untold, self.resumable) = (false, false);
                Ok(None)
            }
            _ if self.end.is_some() => Err("ended"),
            Op::Cancel => Ok(self.end(End::Cancelled, true)),
            Op::Tick if now >= self.overdue_at => Ok(self.end(End::Failed, true)),
            Op::Tick => Err("unchanged"),
            Op::Announce if self.announced => Err("unchanged"),
            Op::Announce => {
                self.announced = true;
                Ok(None)
            }
            Op::Answer { which, by, waits } => self.answer(*which, *by, *waits),
            Op::Abandon | Op::Resume { .. } | Op::Dispatch { .. } | Op::Queue { .. }
                if self.owner.is_none() =>
            {
                Err("unchanged")
            }
            Op::Abandon => Ok(self.end(End::Failed, false)),
            Op::Resume { by } | Op::Dispatch { by } | Op::Queue { by } => {
                (self.owner, self.released) = (Some(*by), false);
                self.fence += 1;
                match op {
                    Op::Dispatch { .. } => Ok(Some(self.again())),
                    Op::Queue { .. } => {
                        self.queue();
                        Ok(None)
                    }
                    _ => Ok(Some("resume")),
                }
            }
            of_owner => {
                self.is_owned()?;
                self.owner_says(of_owner)
            }
        }
    }

    fn owner_says(&mut self, op: &Op) -> Verdict {
        match op {
            Op::Progress(new) if self.progress.is_some_and(|known| *new < known) => {
                return Err("unchanged");
            }
            Op::Progress(new) => self.progress = Some(*new),
            Op::Resumable => self.resumable = true,
            Op::Release => self.released = true,
            Op::Turn if self.leg != Leg::Queued => return Err("unchanged"),
            Op::Turn => return Ok(Some(self.send())),
            // It cannot ask about what was not sent.
            Op::Ask(_) | Op::Round(_) if self.leg == Leg::Queued => return Err("out of turn"),
            Op::Repeat if !self.safe || self.attempts >= 2 => return Err("unchanged"),
            Op::Repeat => return Ok(Some(self.again())),
            Op::Ask(name) => {
                let origin = Some(name.to_string());
                if self.questions.iter().any(|q| q.origin == origin) {
                    return Err("unchanged");
                }
                let key = format!("q{}", self.questions.len() + 1);
                let stage = Stage::Open;
                self.questions.push(Question { key, origin, stage });
            }
            Op::Round(_) if self.at(Stage::Open).next().is_some() => return Err("out of turn"),
            Op::Round(asked) => return Ok(self.round(*asked)),
            Op::Deliver => {
                let next = self
                    .questions
                    .iter_mut()
                    .find(|q| q.stage == Stage::Answered);
                next.ok_or("unchanged")?.stage = Stage::Delivered;
            }
            Op::Finish { large } => {
                let (large, fence) = (*large, self.fence);
                self.end(End::Completed { large, fence }, false);
            }
            Op::Fail => {
                self.end(End::Failed, false);
            }
            _ => return Err("unchanged"),
        }
        Ok(None)
    }

    /// A modern server ends its leg with questions, or only wants to be asked again.
    fn round(&mut self, asked: usize) -> Option<&'static str> {
        self.round += 1;
        for question in &mut self.questions {
            if question.stage == Stage::Answered {
                question.stage = Stage::Delivered;
            }
        }
        for name in 0..asked {
            let (key, origin) = (format!("r{}-m{name}", self.round), Some(format!("m{name}")));
            let stage = Stage::Open;
            self.questions.push(Question { key, origin, stage });
        }
        if asked == 0 {
            self.dispatches += 1;
            return Some("dispatch");
        }
        (self.leg, self.owner) = (Leg::Parked, None);
        None
    }

    fn answer(&mut self, which: Which, by: usize, waits: bool) -> Verdict {
        let keys = self.keys(which);
        let mut changed = false;
        for question in &mut self.questions {
            if question.stage == Stage::Open && keys.contains(&question.key) {
                question.stage = Stage::Answered;
                changed = true;
            }
        }
        if !changed {
            return Err("unchanged");
        }
        match self.leg {
            Leg::Queued | Leg::Sent => Ok(Some("deliver")),
            Leg::Parked if self.at(Stage::Open).next().is_some() => Ok(None),
            Leg::Parked => {
                (self.leg, self.owner) = (Leg::Queued, Some(by));
                self.fence += 1;
                if !waits {
                    self.send();
                }
                Ok(Some("dispatch"))
            }
        }
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            tasks: Vec::new(),
            now: 0,
            last: Ok(None),
        })
        .boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Transition> {
        let create = (any::<bool>(), any::<bool>())
            .prop_map(|(announced, safe)| Transition::Create { announced, safe });
        if state.tasks.is_empty() {
            return create.boxed();
        }
        let faults = prop_oneof![
            60 => Just(Fault::None),
            1 => Just(Fault::Before),
            1 => Just(Fault::After),
        ];
        let on = (
            0..state.tasks.len(),
            ops(),
            prop::bool::weighted(0.2),
            faults,
        )
            .prop_map(|(task, op, stale, fault)| Transition::On {
                task,
                op,
                stale,
                fault,
            });
        let creates = u32::from(state.tasks.len() < TASKS_MAX);
        prop_oneof![
            40 => on,
            1 => (1..LIFE).prop_map(Transition::Wait),
            creates => create,
        ]
        .boxed()
    }

    fn preconditions(state: &Self, transition: &Transition) -> bool {
        match transition {
            Transition::Create { .. } => state.tasks.len() < TASKS_MAX,
            Transition::On { task, .. } => *task < state.tasks.len(),
            Transition::Wait(_) => true,
        }
    }

    fn apply(mut state: Self, transition: &Transition) -> Self {
        state.last = Ok(None);
        match transition {
            Transition::Create { announced, safe } => {
                state.tasks.push(Task::new(*announced, *safe, state.now));
            }
            Transition::On { task, op, .. } => {
                state.last = state.tasks[*task].apply(op, state.now);
            }
            Transition::Wait(seconds) => state.now += seconds,
        }
        state
    }
}

fn ops() -> impl Strategy<Value = Op> {
    let replica = || 0..REPLICAS;
    let which = prop_oneof![
        Just(Which::First),
        Just(Which::All),
        Just(Which::Unknown),
        Just(Which::Again)
    ];
    prop_oneof![
        4 => (0_u8..3).prop_map(Op::Ask),
        3 => (0_usize..3).prop_map(Op::Round),
        6 => (which, replica(), any::<bool>())
            .prop_map(|(which, by, waits)| Op::Answer { which, by, waits }),
        3 => Just(Op::Deliver),
        3 => any::<u8>().prop_map(Op::Progress),
        1 => any::<bool>().prop_map(|large| Op::Finish { large }),
        1 => Just(Op::Fail),
        1 => Just(Op::Cancel),
        2 => Just(Op::Tick),
        2 => Just(Op::Announce),
        2 => Just(Op::Resumable),
        1 => Just(Op::Release),
        2 => Just(Op::Repeat),
        2 => replica().prop_map(|by| Op::Resume { by }),
        2 => replica().prop_map(|by| Op::Dispatch { by }),
        2 => replica().prop_map(|by| Op::Queue { by }),
        4 => Just(Op::Turn),
        1 => Just(Op::Abandon),
        2 => Just(Op::Told),
        1 => Just(Op::Late),
    ]
}
