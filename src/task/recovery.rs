//! The action of a replica on a lost owner's task.
//!
//! A call with side effects is sent at most once. The finder resumes it if the server lets another
//! process fetch the answer, runs it again only if it is safe to repeat, and else fails it with the
//! truth about its effect.

use super::policy::OnOwnerLost;
use super::state::{Leg, Task};
use crate::mcp::error::{Failure, Reason};

/// The most times that a call is run again. A limit is needed because the call itself may crash its owners.
pub const ATTEMPTS_MAX: u32 = 2;

/// The abilities of the replica that found the task.
#[derive(Debug, Clone, Copy)]
pub struct Finder {
    /// The finder reaches the task's server.
    pub within_reach: bool,
    /// The finder can read the sealed resume point.
    pub unseals: bool,
    /// A replica within reach had the time to come back, and did not come back.
    pub waited: bool,
}

/// The next action on the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryStep {
    /// Do nothing: the task has no owner, or nothing is left to do.
    Leave,
    /// Do nothing yet: a replica within reach may come back and do better.
    Wait,
    /// Claim the task and fetch the answer of the call, which still runs.
    Resume,
    /// Claim the task and dispatch its call, for the first time or again.
    Dispatch,
    /// Notify the server that no client waits, then note that the server was notified.
    Tell,
    /// Note that the server was notified, although no replica can notify it.
    Untellable,
    /// Note that the task has no owner: the client that comes back has its call carried on.
    Orphan,
    Fail(Failure),
}

/// Decides for a task found in a lost owner's index.
pub fn decide(task: &Task, finder: Finder) -> RecoveryStep {
    let resumable = task.resume.is_some() && finder.unseals;
    let out_of_reach = resumable && !finder.within_reach;
    if task.is_ended() {
        let tellable = resumable && !task.needs_client();
        return match (task.must_tell, tellable) {
            (false, _) => RecoveryStep::Leave,
            (true, true) if finder.within_reach => RecoveryStep::Tell,
            (true, true) if !finder.waited => RecoveryStep::Wait,
            // Else the task would stay in the index of its lost owner, and its owner in the list, for ever.
            (true, _) => RecoveryStep::Untellable,
        };
    }
    // Such a call runs on its client's session, with credentials that no record has.
    if task.log.is_some() {
        return RecoveryStep::Orphan;
    }
    let lost = RecoveryStep::Fail(task.failure(Reason::OwnerLost));
    match task.leg {
        // Nothing is in flight: the replica that gets the answers carries the call on.
        Leg::Parked(_) => RecoveryStep::Leave,
        // If the owner did not release the task, its client may never have heard of it, and could never stop
        // it.
        Leg::Queued if task.released || task.is_repeatable() => RecoveryStep::Dispatch,
        Leg::Sent(_) if task.on_owner_lost == OnOwnerLost::Fail => lost,
        Leg::Sent(_) if resumable && finder.within_reach && task.needs_client() => {
            if task.client_may_come() {
                RecoveryStep::Orphan
            } else {
                lost
            }
        }
        Leg::Sent(_) if resumable && finder.within_reach => RecoveryStep::Resume,
        Leg::Sent(_) if task.is_repeatable() => RecoveryStep::Dispatch,
        Leg::Sent(_) if out_of_reach && !finder.waited => RecoveryStep::Wait,
        Leg::Queued | Leg::Sent(_) => lost,
    }
}

/// The fate of a call that no other replica carries on.
pub const FAILS: &str = "fails";

/// Returns what becomes of a call whose replica is lost, in a word, if another replica reaches the server. `None`: the call has
/// ended.
pub fn fate(task: &Task) -> Option<&'static str> {
    let finder = Finder {
        within_reach: true,
        unseals: true,
        waited: true,
    };
    if task.is_ended() {
        return None;
    }
    Some(match decide(task, finder) {
        RecoveryStep::Resume => "resumed",
        RecoveryStep::Dispatch => "sent",
        RecoveryStep::Orphan => "waits_for_client",
        RecoveryStep::Leave => "awaits_answer",
        RecoveryStep::Fail(_)
        | RecoveryStep::Wait
        | RecoveryStep::Tell
        | RecoveryStep::Untellable => FAILS,
    })
}

impl Task {
    /// Returns `true` if the call is safe to run once more and was not run too often.
    pub fn is_repeatable(&self) -> bool {
        self.on_owner_lost == OnOwnerLost::Rerun && self.attempts < ATTEMPTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::error::SideEffect;
    use crate::task::machine::log_tests::logged;
    use crate::task::machine::tests::task;
    use crate::task::resume_point::ResumePoint;
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
            resume: resumable.then(|| point(false)),
            ..task(Leg::Sent(1), true)
        }
    }

    fn point(needs_client: bool) -> ResumePoint {
        ResumePoint {
            sealed: "sealed".into(),
            needs_client,
        }
    }

    fn lost(effect: SideEffect) -> RecoveryStep {
        RecoveryStep::Fail(Failure::new(Reason::OwnerLost, effect))
    }

    #[test]
    fn a_call_with_effects_is_resumed_or_failed_and_never_repeated() {
        let unknown = lost(SideEffect::Unknown);
        let resumable = sent(OnOwnerLost::Resume, true);
        assert_eq!(decide(&resumable, HERE), RecoveryStep::Resume);
        assert_eq!(decide(&resumable, ELSEWHERE), RecoveryStep::Wait);
        assert_eq!(decide(&resumable, PATIENT), unknown);
        assert_eq!(decide(&resumable, SEALED_OUT), unknown);
        for finder in [HERE, ELSEWHERE, PATIENT, SEALED_OUT] {
            assert_eq!(decide(&sent(OnOwnerLost::Resume, false), finder), unknown);
            assert_eq!(decide(&sent(OnOwnerLost::Fail, true), finder), unknown);
        }
    }

    #[test]
    fn a_call_that_needs_its_client_waits_for_it() {
        let task = Task {
            resume: Some(point(true)),
            ..sent(OnOwnerLost::Resume, true)
        };
        assert_eq!(decide(&task, HERE), RecoveryStep::Orphan);
        assert_eq!(fate(&task), Some("waits_for_client"));
        assert_eq!(decide(&task, ELSEWHERE), RecoveryStep::Wait);
        for finder in [PATIENT, SEALED_OUT] {
            assert_eq!(decide(&task, finder), lost(SideEffect::Unknown));
        }
        let must_fail = Task {
            on_owner_lost: OnOwnerLost::Fail,
            ..task.clone()
        };
        assert_eq!(decide(&must_fail, HERE), lost(SideEffect::Unknown));
        // Without credentials no replica can cancel the call at the server.
        let cancelled = Task {
            outcome: Some(Outcome::Cancelled),
            must_tell: true,
            ..task
        };
        assert_eq!(decide(&cancelled, HERE), RecoveryStep::Untellable);
    }

    #[test]
    fn what_is_safe_to_repeat_is_repeated_a_few_times() {
        let mut task = sent(OnOwnerLost::Rerun, false);
        for finder in [HERE, ELSEWHERE, PATIENT, SEALED_OUT] {
            assert_eq!(decide(&task, finder), RecoveryStep::Dispatch);
        }
        task.attempts = ATTEMPTS_MAX;
        assert_eq!(decide(&task, HERE), lost(SideEffect::Unknown));
        assert_eq!(
            decide(&sent(OnOwnerLost::Rerun, true), HERE),
            RecoveryStep::Resume
        );
    }

    #[test]
    fn what_was_never_sent_is_dispatched_only_if_its_client_knows_it() {
        let mut queued = task(Leg::Queued, true);
        assert_eq!(decide(&queued, HERE), lost(SideEffect::None));
        queued.released = true;
        assert_eq!(decide(&queued, ELSEWHERE), RecoveryStep::Dispatch);
    }

    /// A finder has neither the session nor the credentials of the client.
    #[test]
    fn a_call_with_a_log_waits_for_its_client() {
        for finder in [HERE, ELSEWHERE, PATIENT, SEALED_OUT] {
            assert_eq!(decide(&logged(), finder), RecoveryStep::Orphan);
        }
        let over = Task {
            outcome: Some(Outcome::Cancelled),
            ..logged()
        };
        assert_eq!(decide(&over, HERE), RecoveryStep::Leave);
    }

    #[test]
    fn a_parked_call_waits_for_its_answers() {
        assert_eq!(
            decide(&task(Leg::Parked(1), true), HERE),
            RecoveryStep::Leave
        );
    }

    #[test]
    fn a_cancelled_call_is_told_where_that_is_possible() {
        let mut ended = sent(OnOwnerLost::Resume, true);
        ended.outcome = Some(Outcome::Cancelled);
        assert_eq!(decide(&ended, HERE), RecoveryStep::Leave);
        ended.must_tell = true;
        assert_eq!(decide(&ended, HERE), RecoveryStep::Tell);
        assert_eq!(decide(&ended, ELSEWHERE), RecoveryStep::Wait);
        assert_eq!(decide(&ended, PATIENT), RecoveryStep::Untellable);
        ended.resume = None;
        assert_eq!(decide(&ended, HERE), RecoveryStep::Untellable);
    }
}
