//! What a client that waits hears of its call now. Pure: every source of what is known asks here.

use super::super::call::Announce;
use super::terms::WaitTerms;
use crate::task::policy::InputWhen;

/// What is known of a call at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::runner) struct CallView {
    /// A client was told of the task: this one or another.
    pub(in crate::runner) is_announced: bool,
    pub(in crate::runner) is_ended: bool,
    /// The call waits for answers that this client can give only in another request.
    pub(in crate::runner) asks: bool,
    /// The client has waited as long as it does without a task.
    pub(in crate::runner) is_time: bool,
}

/// What the client hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum Hears {
    /// Nothing that ends the wait.
    Nothing,
    /// How the call ended.
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
    if view.is_ended {
        return Hears::Answer;
    }
    if view.asks && terms.input == InputWhen::BeforeTask {
        return Hears::Question;
    }
    if may_be_task && (view.asks || view.is_time) {
        return Hears::Task;
    }
    Hears::Nothing
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
            era: Era::Modern,
            progress_token: None,
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
        let runs = CallView::default();
        let announced = CallView {
            is_announced: true,
            ..runs
        };
        let ended = |view| CallView {
            is_ended: true,
            ..view
        };
        let asks = |view| CallView { asks: true, ..view };
        let late = |view| CallView {
            is_time: true,
            ..view
        };
        for (name, view, of_held, of_asked_in, of_asked_before, of_ticket) in [
            (
                "runs",
                runs,
                Hears::Nothing,
                Hears::Nothing,
                Hears::Nothing,
                Hears::Nothing,
            ),
            (
                "late",
                late(runs),
                Hears::Nothing,
                Hears::Task,
                Hears::Task,
                Hears::Task,
            ),
            (
                "asks",
                asks(runs),
                Hears::Question,
                Hears::Task,
                Hears::Question,
                Hears::Task,
            ),
            (
                "asks late",
                asks(late(runs)),
                Hears::Question,
                Hears::Task,
                Hears::Question,
                Hears::Task,
            ),
            (
                "ended",
                ended(runs),
                Hears::Answer,
                Hears::Answer,
                Hears::Answer,
                Hears::Answer,
            ),
            (
                "ended late",
                ended(late(runs)),
                Hears::Answer,
                Hears::Answer,
                Hears::Answer,
                Hears::Answer,
            ),
            (
                "another was told",
                announced,
                Hears::Nothing,
                Hears::Task,
                Hears::Task,
                Hears::Nothing,
            ),
            (
                "told, ended",
                ended(announced),
                Hears::Answer,
                Hears::Task,
                Hears::Task,
                Hears::Answer,
            ),
        ] {
            for (client, expected) in [
                (&held, of_held),
                (&asked_in, of_asked_in),
                (&asked_before, of_asked_before),
                (&ticket, of_ticket),
            ] {
                assert_eq!(hears(client, view), expected, "{name}: {client:?}");
            }
        }
    }
}
