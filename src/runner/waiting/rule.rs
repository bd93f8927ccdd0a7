//! The rule for the kind of answer that a waiting client receives for its call now. Pure: every source of information
//! about a call uses it.

use super::super::call::Announce;
use super::terms::WaitTerms;
use crate::task::policy::InputWhen;

/// The known state of a call at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) struct CallView {
    pub(in crate::runner) state: CallState,
    /// `true` if a client was notified of the task: this one or another.
    pub(in crate::runner) is_announced: bool,
    /// The client has waited as long as it does without a task.
    pub(in crate::runner) is_time: bool,
}

/// The stage that a call has reached, for one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum CallState {
    Runs,
    /// The call waits for answers that this client can give only in another request.
    Asks,
    Ended,
}

/// The kind of answer that the client receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum Hears {
    /// Nothing that ends the wait.
    Nothing,
    /// The outcome of the call.
    Answer,
    /// The questions, before there is a task.
    Question,
    /// That the call is a task, or a ticket.
    Task,
}

pub(super) fn hears(terms: &WaitTerms, view: CallView) -> Hears {
    let may_be_task = terms.when.is_some();
    if may_be_task && view.is_announced && matches!(terms.announce, Announce::Task) {
        // Of two clients of one call the second would otherwise get the plain answer of a task that it knows nothing of.
        return Hears::Task;
    }
    match view.state {
        CallState::Ended => Hears::Answer,
        CallState::Asks if terms.input == InputWhen::BeforeTask => Hears::Question,
        CallState::Asks if may_be_task => Hears::Task,
        CallState::Runs if may_be_task && view.is_time => Hears::Task,
        CallState::Runs | CallState::Asks => Hears::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::terms::TaskWhen;
    use super::*;
    use crate::mcp::version::Era;
    use crate::task::ticket::{CompanionNames, Ticket};

    fn terms(input: InputWhen, announce: Announce) -> WaitTerms {
        WaitTerms {
            when: Some(TaskWhen::After(Duration::from_secs(1))),
            announce,
            input,
            answer_at: None,
            era: Era::Modern,
            progress_token: None,
            note: None,
        }
    }

    #[test]
    fn a_client_hears_one_thing_at_a_time() {
        let held = WaitTerms::held();
        let asked_in = terms(InputWhen::InTask, Announce::Task);
        let asked_before = terms(InputWhen::BeforeTask, Announce::Task);
        let ticket = Ticket {
            names: CompanionNames::free(&"".into(), |_| false).unwrap(),
            client_era: Era::Modern,
            takes_large_events: false,
        };
        let ticket = terms(InputWhen::InTask, Announce::Ticket(ticket));
        let view = |state| CallView {
            state,
            is_announced: false,
            is_time: false,
        };
        let late = |state| CallView {
            is_time: true,
            ..view(state)
        };
        let announced = |state| CallView {
            is_announced: true,
            ..view(state)
        };
        let (runs, asks, ended) = (CallState::Runs, CallState::Asks, CallState::Ended);
        // Each client's letter: it hears Nothing, the Answer, the Question, or of the Task.
        for (view, expected) in [
            (view(runs), "NNNN"),
            (late(runs), "NTTT"),
            (announced(runs), "NTTN"),
            (view(asks), "QTQT"),
            (late(asks), "QTQT"),
            (announced(asks), "QTTT"),
            (view(ended), "AAAA"),
            (late(ended), "AAAA"),
            (announced(ended), "ATTA"),
        ] {
            let clients = [&held, &asked_in, &asked_before, &ticket];
            let heard = clients.map(|client| match hears(client, view) {
                Hears::Nothing => 'N',
                Hears::Answer => 'A',
                Hears::Question => 'Q',
                Hears::Task => 'T',
            });
            assert_eq!(heard.iter().collect::<String>(), expected, "{view:?}");
        }
    }
}
