//! What a finder does with a task whose owner is lost.
//!
//! A call with side effects is sent at most once: it is resumed where its server lets somebody
//! else fetch the answer, run again only where it was called safe to repeat, and else failed with
//! the truth about its effect.

use super::policy::OnOwnerLost;
use super::state::{Leg, Task};
use crate::mcp::error::{Failure, Reason};

/// A call that took this many owners down, or lost as many connections, is not run once more.
pub const ATTEMPTS_MAX: u32 = 2;

/// What the finder can do.
#[derive(Debug, Clone, Copy)]
pub struct Finder {
    /// It can get at the task's server.
    pub within_reach: bool,
    /// It can read what was sealed.
    pub unseals: bool,
    /// An instance within reach had the time to come back, and did not.
    pub waited: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it has no owner to lose, or nothing is left to do.
    Leave,
    /// Somebody within reach may come back and do better.
    Wait,
    /// Claim it and fetch the answer of the call that still runs.
    Resume,
    /// Claim it and dispatch it, for the first time or again.
    Dispatch,
    /// Tell the server that nobody waits, then note that it was told.
    Tell,
    /// It has ended and nobody can tell the server: note that it was told.
    Untellable,
    Fail(Failure),
}

/// Decides for a task found in a lost owner's index.
pub fn decide(task: &Task, finder: Finder) -> Verdict {
    let resumable = task.resume.is_some() && finder.unseals;
    let out_of_reach = resumable && !finder.within_reach;
    if task.is_ended() {
        return match (task.must_tell, resumable) {
            (false, _) => Verdict::Leave,
            (true, true) if finder.within_reach => Verdict::Tell,
            (true, true) if !finder.waited => Verdict::Wait,
            (true, _) => Verdict::Untellable,
        };
    }
    let lost = Verdict::Fail(task.failure(Reason::OwnerLost));
    match task.leg {
        // Nothing is in flight: whoever gets the answers carries it on.
        Leg::Parked(_) => Verdict::Leave,
        // Without a release its client may never have heard of it, and nobody would ever stop it.
        Leg::Queued if task.released || task.is_repeatable() => Verdict::Dispatch,
        Leg::Sent(_) if task.on_owner_lost == OnOwnerLost::Fail => lost,
        Leg::Sent(_) if resumable && finder.within_reach => Verdict::Resume,
        Leg::Sent(_) if task.is_repeatable() => Verdict::Dispatch,
        Leg::Sent(_) if out_of_reach && !finder.waited => Verdict::Wait,
        Leg::Queued | Leg::Sent(_) => lost,
    }
}

impl Task {
    /// Safe to run once more, and not tried too often.
    pub fn is_repeatable(&self) -> bool {
        self.on_owner_lost == OnOwnerLost::Rerun && self.attempts < ATTEMPTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::error::SideEffect;
    use crate::task::machine::tests::task;
    use crate::task::state::Outcome;

    const HERE: Finder = Finder {
        within_reach: true,
        unseals: true,
        waited: false,
    };
    const ELSEWHERE: Finder = Finder {
        within_reach: false,
        ..HERE
    };
    const PATIENT: Finder = Finder {
        waited: true,
        ..ELSEWHERE
    };
    const SEALED_OUT: Finder = Finder {
        unseals: false,
        ..HERE
    };

    fn sent(on_owner_lost: OnOwnerLost, resumable: bool) -> Task {
        Task {
            on_owner_lost,
            resume: resumable.then(|| "sealed".into()),
            ..task(Leg::Sent(1), true)
        }
    }

    fn lost(effect: SideEffect) -> Verdict {
        Verdict::Fail(Failure::new(Reason::OwnerLost, effect))
    }

    #[test]
    fn a_call_with_effects_is_resumed_or_failed_and_never_repeated() {
        let unknown = lost(SideEffect::Unknown);
        let resumable = sent(OnOwnerLost::Resume, true);
        assert_eq!(decide(&resumable, HERE), Verdict::Resume);
        assert_eq!(decide(&resumable, ELSEWHERE), Verdict::Wait);
        assert_eq!(decide(&resumable, PATIENT), unknown);
        assert_eq!(decide(&resumable, SEALED_OUT), unknown);
        for finder in [HERE, ELSEWHERE, PATIENT, SEALED_OUT] {
            assert_eq!(decide(&sent(OnOwnerLost::Resume, false), finder), unknown);
            assert_eq!(decide(&sent(OnOwnerLost::Fail, true), finder), unknown);
        }
    }

    #[test]
    fn what_is_safe_to_repeat_is_repeated_a_few_times() {
        let mut task = sent(OnOwnerLost::Rerun, false);
        for finder in [HERE, ELSEWHERE, PATIENT, SEALED_OUT] {
            assert_eq!(decide(&task, finder), Verdict::Dispatch);
        }
        task.attempts = ATTEMPTS_MAX;
        assert_eq!(decide(&task, HERE), lost(SideEffect::Unknown));
        assert_eq!(
            decide(&sent(OnOwnerLost::Rerun, true), HERE),
            Verdict::Resume
        );
    }

    #[test]
    fn what_was_never_sent_is_dispatched_only_if_its_client_knows_it() {
        let mut queued = task(Leg::Queued, true);
        assert_eq!(decide(&queued, HERE), lost(SideEffect::None));
        queued.released = true;
        assert_eq!(decide(&queued, ELSEWHERE), Verdict::Dispatch);
    }

    #[test]
    fn a_parked_call_waits_for_its_answers() {
        assert_eq!(decide(&task(Leg::Parked(1), true), HERE), Verdict::Leave);
    }

    #[test]
    fn a_cancelled_call_is_told_where_that_is_possible() {
        let mut ended = sent(OnOwnerLost::Resume, true);
        ended.outcome = Some(Outcome::Cancelled);
        assert_eq!(decide(&ended, HERE), Verdict::Leave);
        ended.must_tell = true;
        assert_eq!(decide(&ended, HERE), Verdict::Tell);
        assert_eq!(decide(&ended, ELSEWHERE), Verdict::Wait);
        assert_eq!(decide(&ended, PATIENT), Verdict::Untellable);
        ended.resume = None;
        assert_eq!(decide(&ended, HERE), Verdict::Untellable);
    }
}
