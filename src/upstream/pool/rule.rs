//! Which session a call gets: the rule of the pool. Pure.

/// The rule for which calls may use one session at the same time. A question on a session may name no call, so it can
/// be assigned to its call only while one call runs there that may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Sharing {
    /// All calls of the key share one session, which holds their state.
    Always,
    /// Calls share a session until the client of one of them was asked. For sessions that are expensive, as a
    /// process is: another one is started only for a call whose session has asked, or may still ask for a call
    /// that was cancelled.
    UntilAsked,
    /// Calls that may ask share a session only when no other may be started.
    AtTheLimit,
    /// One call at a time uses a session.
    Never,
}

/// Indicates whether a request may ask the client something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum MayAsk {
    Maybe,
    Never,
}

/// The part of the state of one session that the rule needs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SessionState {
    /// Requests for which the session was chosen and that are not over.
    pub(super) users: usize,
    /// Those of them that may ask.
    pub(super) askers: usize,
    pub(super) questions: Questions,
}

/// Which questions may come on a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::upstream) struct Questions {
    /// A call on the session may ask, or a call that was given up may still do so.
    pub(in crate::upstream) may_come: bool,
    /// A call on the session has asked its client and is not over.
    pub(in crate::upstream) has_asked: bool,
    /// A call that was given up may still ask.
    pub(in crate::upstream) is_doubtful: bool,
}

impl SessionState {
    /// No question on the session could be another call's.
    fn is_free(&self) -> bool {
        self.askers == 0 && !self.questions.may_come
    }
}

/// The session that a request may use, of those of its key in the order in which they were started. `None`: the
/// request needs another session.
pub(super) fn fitting<S>(
    sharing: Sharing,
    asks: MayAsk,
    sessions: &[S],
    state: impl Fn(&S) -> SessionState,
) -> Option<usize> {
    let first = |fits: fn(&SessionState) -> bool| sessions.iter().position(|it| fits(&state(it)));
    // A request that never asks also goes first to a session where nothing runs: what runs may hold it up.
    match (sharing, asks) {
        // If the server has lost its sessions, the newest is the one that it knows.
        (Sharing::Never, _) => sessions.iter().rposition(|it| state(it).users == 0),
        (Sharing::Always, MayAsk::Maybe) => first(|_| true),
        (Sharing::Always, MayAsk::Never) => {
            first(SessionState::is_free).or_else(|| first(|_| true))
        }
        (Sharing::UntilAsked, MayAsk::Maybe) => {
            first(|it| !it.questions.has_asked && !it.questions.is_doubtful)
        }
        (Sharing::AtTheLimit, MayAsk::Maybe) => first(SessionState::is_free),
        // A server that waits for its client may answer no other call meanwhile.
        (Sharing::UntilAsked | Sharing::AtTheLimit, MayAsk::Never) => {
            first(SessionState::is_free).or_else(|| first(|it| !it.questions.has_asked))
        }
    }
}

/// The session that a request uses although it does not fit, because no other may be started. `None`: the request
/// waits until another may be started.
pub(super) fn shared_at_the_limit<S>(
    sharing: Sharing,
    sessions: &[S],
    state: impl Fn(&S) -> SessionState,
) -> Option<usize> {
    if sharing == Sharing::Never {
        return None;
    }
    // A question is refused while several calls run that may ask, so the fewest of them are best.
    let by_askers = |at: &usize| sessions.get(*at).map(|it| state(it).askers);
    (0..sessions.len()).min_by_key(by_askers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNUSED: SessionState = SessionState {
        users: 0,
        askers: 0,
        questions: Questions {
            may_come: false,
            has_asked: false,
            is_doubtful: false,
        },
    };
    /// A request that never asks runs there.
    const LISTS: SessionState = SessionState { users: 1, ..UNUSED };
    /// A call runs there.
    const RUNS: SessionState = SessionState {
        users: 1,
        askers: 1,
        questions: Questions {
            may_come: true,
            ..UNUSED.questions
        },
    };
    /// A call runs there whose client was asked.
    const ASKED: SessionState = SessionState {
        questions: Questions {
            has_asked: true,
            ..RUNS.questions
        },
        ..RUNS
    };
    /// A call was cancelled there and may still ask.
    const DOUBTFUL: SessionState = SessionState {
        questions: Questions {
            may_come: true,
            has_asked: false,
            is_doubtful: true,
        },
        ..UNUSED
    };

    fn chosen(sharing: Sharing, asks: MayAsk, sessions: &[SessionState]) -> Option<usize> {
        fitting(sharing, asks, sessions, |it| *it)
    }

    #[test]
    fn a_call_gets_a_session_on_which_its_questions_can_be_told_apart() {
        use Sharing::{Always, AtTheLimit, Never, UntilAsked};
        for (sessions, always, until_asked, at_the_limit, never) in [
            (&[][..], None, None, None, None),
            (&[UNUSED], Some(0), Some(0), Some(0), Some(0)),
            (&[LISTS], Some(0), Some(0), Some(0), None),
            (&[RUNS], Some(0), Some(0), None, None),
            (&[ASKED], Some(0), None, None, None),
            (&[DOUBTFUL], Some(0), None, None, Some(0)),
            (&[ASKED, RUNS, UNUSED], Some(0), Some(1), Some(2), Some(2)),
            (&[UNUSED, UNUSED, RUNS], Some(0), Some(0), Some(0), Some(1)),
        ] {
            for (sharing, expected) in [
                (Always, always),
                (UntilAsked, until_asked),
                (AtTheLimit, at_the_limit),
                (Never, never),
            ] {
                let found = chosen(sharing, MayAsk::Maybe, sessions);
                assert_eq!(found, expected, "{sharing:?} {sessions:?}");
            }
        }
    }

    #[test]
    fn a_request_that_never_asks_avoids_what_may_hold_it_up() {
        use Sharing::{Always, AtTheLimit, Never, UntilAsked};
        for (sessions, always, shared, never) in [
            (&[RUNS, UNUSED][..], Some(1), Some(1), Some(1)),
            (&[ASKED, RUNS], Some(0), Some(1), None),
            (&[ASKED], Some(0), None, None),
        ] {
            for (sharing, expected) in [
                (Always, always),
                (UntilAsked, shared),
                (AtTheLimit, shared),
                (Never, never),
            ] {
                let found = chosen(sharing, MayAsk::Never, sessions);
                assert_eq!(found, expected, "{sharing:?} {sessions:?}");
            }
        }
    }

    #[test]
    fn at_the_limit_the_session_with_the_fewest_calls_is_shared_if_any_may_be() {
        let two = SessionState { askers: 2, ..ASKED };
        let at_limit = |sharing, sessions: &[SessionState]| {
            shared_at_the_limit(sharing, sessions, |it: &SessionState| *it)
        };
        assert_eq!(at_limit(Sharing::UntilAsked, &[two, ASKED]), Some(1));
        assert_eq!(at_limit(Sharing::AtTheLimit, &[ASKED, two]), Some(0));
        assert_eq!(at_limit(Sharing::UntilAsked, &[]), None);
        assert_eq!(at_limit(Sharing::Never, &[ASKED]), None);
    }
}
