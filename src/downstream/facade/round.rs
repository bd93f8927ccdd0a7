//! What a modern server asks within a call: put to the client while its patience lasts, and from then
//! on in its ticket.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::asked::Asked;
use super::conversation::Conversation;
use super::questions::{self, Given, Unanswered};
use crate::downstream::outbound::response::Rpc;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::runner::responder::{CallAnswer, CallSubscriber, Reply};
use crate::task::id::TaskId;
use crate::upstream::UpstreamError;

/// A store that did not take a ticket is asked again after so long.
const TICKET_AGAIN: Duration = Duration::from_secs(1);

/// The answer in place of the one that the call waits for, until it is announced.
struct Ticket {
    rpc: Rpc,
    client: CallSubscriber,
    task: TaskId,
}

impl Asked {
    /// What the client answers; else what its request is answered with.
    pub(super) async fn ask(
        &self,
        client: &Conversation,
        result: &RawValue,
        requests: &[(Box<str>, Box<RawValue>)],
    ) -> Result<String, Rpc> {
        let id = self.id.get();
        let failed = |reason| Rpc::failure(id, Failure::new(reason, SideEffect::Unknown));
        let given = Given::default();
        let putting = questions::put(self, client, requests, &given);
        // Before the ticket is there, an answer counts.
        let ticket = tokio::select! {
            biased;
            answers = putting => return answers.map_err(|Unanswered(error)| {
                let error = UpstreamError {
                    error,
                    status: 200,
                    www_authenticate: None,
                };
                Rpc::error_as_it_is(id, error)
            }),
            () = self.front.runner.halt().cancelled() => return Err(failed(Reason::Shutdown)),
            () = tokio::time::sleep_until(self.deadline) => return Err(failed(Reason::Deadline)),
            ticket = self.ticket(result) => ticket,
        };
        // And so does one that came while others were open.
        pass_on(self, ticket.task, given).await;
        ticket.client.into_guard().announce();
        Err(ticket.rpc)
    }

    /// Once its client's patience is over and a store takes it.
    async fn ticket(&self, result: &RawValue) -> Ticket {
        let mut until = self.patience.as_ref().map(|patience| patience.until);
        loop {
            over(until).await;
            if let Some(ticket) = self.asked_by_ticket(result).await {
                return ticket;
            }
            until = Some(Instant::now() + TICKET_AGAIN);
        }
    }

    /// A ticket in which the questions are asked. `None`: the store does not take it. Dropped before it
    /// is announced, there is none: to its carrier the client is gone.
    async fn asked_by_ticket(&self, result: &RawValue) -> Option<Ticket> {
        let begun = self
            .front
            .runner
            .ask_in_task(self.call(None), result.to_owned());
        let (mut client, task) = begun.ok()?;
        loop {
            match client.next().await? {
                Reply::Relay(_) => {}
                Reply::Answer(CallAnswer::Result(ticket)) if ticket.get() != result.get() => {
                    return Some(Ticket {
                        rpc: Rpc::result(self.id.get(), ticket.get()),
                        client,
                        task: *task.get()?,
                    });
                }
                Reply::Answer(_) => return None,
            }
        }
    }
}

/// Resolves at that time; never, where there is none. Cancel safe.
async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// What the client answered before it has its ticket, to the task that asks it, too. What the store does
/// not take is asked there.
async fn pass_on(asked: &Asked, task: TaskId, given: Given) {
    let mut given = given.into_answers();
    if given.is_empty() {
        return;
    }
    let (front, caller) = (&asked.front, &asked.session.caller);
    let Ok(Some(loaded)) = front.tasks_of(caller).find(task).await else {
        return;
    };
    let answers: BTreeMap<_, _> = loaded
        .task
        .open_questions()
        .filter_map(|(question, _)| Some((question.key.clone(), given.remove(&question.origin)?)))
        .collect();
    let from = asked.from.clone();
    let taken = front.runner.answer(loaded, answers, from).await;
    if let Err(error) = taken {
        tracing::debug!(?error, "answers did not get into a ticket");
    }
}
