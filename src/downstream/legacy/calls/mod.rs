//! What of a legacy session raincheck carries itself, because what passes can neither become a ticket
//! nor be anything else than one call: calls where there are companion tools, and calls of tools that
//! the server runs only as tasks. With companion tools, lists of tools have ours in them.
//!
//! All else passes.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::downstream::calls::registry::AnswerPath;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Shared;
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::runner::responder::RelayedAnswer;
use crate::upstream::Answer;

mod call;

pub(in crate::downstream) use call::{Carry, DecidedCall, answer, carry, decide};

/// How the answer to `tools/list` is edited. `None`: it passes as it is.
pub(super) async fn edit_of_tools(
    front: &Shared,
    by: &Requester,
    request: &Request<'_>,
    says_tasks: bool,
) -> Option<AnswerEdit> {
    let has_ours = match front.companion.as_ref().filter(|_| request.has_id()) {
        Some(companion) => {
            let has_ours = is_decided(front, by).await;
            companion.note_list(by.name(), has_ours);
            has_ours
        }
        None => false,
    };
    let ours = has_ours.then(|| by.session_capabilities());
    AnswerEdit::of_tools(front, by, request, says_tasks, ours)
}

/// Takes the answer to a question of a call that is carried here. False where no such call asked the question: the
/// answer is for the server.
pub(super) fn take_answer(
    front: &Shared,
    by: &Requester,
    id: &RawValue,
    message: &Object<'_>,
) -> bool {
    let answer = match (message.get("result"), message.get("error")) {
        (Some(result), None) => Answer::Result(result.get().into()),
        (None, Some(error)) => Answer::Refused(error.get().into()),
        _ => return false,
    };
    let Some(session) = by.session else {
        return false;
    };
    if let Some((id, AnswerPath::Carrier(answers))) = front.calls.take_question(session, id) {
        // There is room for the answers to all questions that may be asked. An answer that comes too late is lost.
        let id = Arc::from(id);
        let _ = answers.try_send(RelayedAnswer { id, answer });
        return true;
    }
    tell_passed(front, session, id);
    false
}

/// Whether it is decided how the server is spoken to, and so whether its list can be read. It is asked
/// where nobody did so before: a client lists the tools once.
async fn is_decided(front: &Shared, by: &Requester) -> bool {
    let upstream = &front.upstream;
    if !upstream.is_decided() {
        upstream.era_soon(by.credentials.clone()).await;
    }
    upstream.is_decided()
}

/// Tells the replica that may carry the call which asked this question. The client does not wait for that.
fn tell_passed(front: &Shared, session: SessionKey, question: &RawValue) {
    let may_be_anothers = front.companion.is_some() && front.upstream.speaks_http();
    if !may_be_anothers || front.runner.is_alone() {
        return;
    }
    let (telling, question) = (Arc::clone(front), question.to_owned());
    front.passing.spawn(async move {
        let runner = &telling.runner;
        let told = runner.record_passed(session.as_bytes(), question.get());
        if let Err(error) = told.await {
            tracing::warn!(%error, "a call may ask again what its client has answered on another replica");
        }
    });
}
