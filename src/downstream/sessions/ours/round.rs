//! The questions of a modern server within a call: the client is asked while its patience lasts, and after that its
//! ticket has the questions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::conversation::Conversation;
use super::questions::{self, AnswersSoFar, Unanswered};
use super::translated::TranslatedRequest;
use crate::downstream::outbound::response::Rpc;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::runner::responder::{CallAnswer, CallSubscriber, Reply};
use crate::task::id::TaskId;
use crate::task::input_rule::AnsweredBy;
use crate::upstream::UpstreamError;

/// The pause before a store that did not take a ticket is asked again.
const TICKET_AGAIN: Duration = Duration::from_secs(1);

/// A ticket in place of the answer. The task behind it exists once the ticket is announced.
struct CallTicket {
    rpc: Rpc,
    client: CallSubscriber,
    task: TaskId,
}

impl TranslatedRequest {
    /// Asks the client, and returns its answers. `Err`: the response that the request gets instead.
    pub(super) async fn ask(
        &self,
        client: &Conversation,
        result: &RawValue,
        requests: &[(Box<str>, Box<RawValue>)],
    ) -> Result<String, Rpc> {
        let id = self.id.get();
        let failed = |reason| Rpc::failure(id, Failure::new(reason, SideEffect::Unknown));
        let given = AnswersSoFar::default();
        let putting = questions::put(self, client, requests, &given);
        // Answers that come before the ticket is made count.
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
            () = self.proxy.runner.halt().cancelled() => return Err(failed(Reason::Shutdown)),
            () = tokio::time::sleep_until(self.deadline) => return Err(failed(Reason::Deadline)),
            ticket = self.ticket(result) => ticket,
        };
        // Answers that came while other questions were open count, too.
        pass_on(self, ticket.task, given).await;
        ticket.client.into_guard().announce();
        Err(ticket.rpc)
    }

    /// Makes a ticket when the client's patience is over, as soon as the store takes it.
    async fn ticket(&self, result: &RawValue) -> CallTicket {
        let mut until = self.patience_ends;
        loop {
            over(until).await;
            if let Some(ticket) = self.asked_by_ticket(result).await {
                return ticket;
            }
            until = Some(Instant::now() + TICKET_AGAIN);
        }
    }

    /// Makes a ticket that has the questions. `None`: the store does not take the task. If the ticket is dropped
    /// before it is announced, its carrier takes the client for gone, and no task is left.
    async fn asked_by_ticket(&self, result: &RawValue) -> Option<CallTicket> {
        let begun = self
            .proxy
            .runner
            .ask_in_task(self.call(None), result.to_owned());
        let (mut client, task) = begun.ok()?;
        loop {
            match client.next().await? {
                Reply::Relay(_) => {}
                Reply::Answer(CallAnswer::Result(ticket)) if ticket.get() != result.get() => {
                    return Some(CallTicket {
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

/// Resolves at that time, or never without one. Cancel safe.
async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Gives the answers that came before the ticket to the task, which has the same questions. The task asks again for
/// answers that the store does not take.
async fn pass_on(asked: &TranslatedRequest, task: TaskId, given: AnswersSoFar) {
    let mut given = given.into_answers();
    if given.is_empty() {
        return;
    }
    let (proxy, caller) = (&asked.proxy, &asked.session.caller);
    let Ok(Some(loaded)) = proxy.tasks_of(caller).find(task).await else {
        return;
    };
    let answers: BTreeMap<_, _> = loaded
        .task
        .open_questions()
        .filter_map(|(question, _)| Some((question.key.clone(), given.remove(&question.origin)?)))
        .collect();
    let from = asked.from.clone();
    let from = (AnsweredBy::Client, from);
    let taken = proxy.runner.answer(loaded, answers, from).await;
    if let Err(error) = taken {
        tracing::debug!(?error, "answers did not get into a ticket");
    }
}
