//! The calls of legacy sessions that raincheck carries itself. A call that passes can become neither a task nor a
//! ticket, cannot wait for its turn, and cannot be the same call as another.
//!
//! All other calls pass.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::downstream::calls::registry::AnswerPath;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::runner::responder::RelayedAnswer;
use crate::upstream::Answer;

mod carry;
mod servers_session;

pub(in crate::downstream) use carry::{AskedClient, CallSession, carry};
pub(in crate::downstream) use servers_session::{answer, decide};

/// Returns the edits to the answer to `tools/list`. `None`: it passes as it is.
pub(super) async fn edit_of_tools(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
    says_tasks: bool,
) -> Option<AnswerEdit> {
    let has_ours = match proxy.companion_of(by).filter(|_| request.has_id()) {
        Some(companion) => {
            let has_ours = is_decided(proxy, by).await;
            // Also noted when it is false: such a client cannot use a ticket, so its calls get none.
            companion.note_list(by.memory_key(), has_ours);
            has_ours
        }
        None => false,
    };
    let ours = has_ours.then(|| by.session_capabilities());
    AnswerEdit::of_tools(proxy, by, request, says_tasks, ours)
}

/// Takes the answer to a question of a call that is carried here. False where no such call asked the question: the
/// answer is for the server.
pub(super) fn take_answer(
    proxy: &Arc<Proxy>,
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
    if let Some((id, AnswerPath::Carrier(answers))) = proxy.calls.take_question(session, id) {
        // There is room for the answers to all questions that may be asked. An answer that comes too late is lost.
        let id = Arc::from(id);
        let _ = answers.try_send(RelayedAnswer { id, answer });
        return true;
    }
    tell_passed(proxy, by, session, id);
    false
}

/// Returns `true` if raincheck knows which transport and era the server speaks, and can read its list. The server is
/// asked now if it was not asked before, because a client lists the tools only once.
async fn is_decided(proxy: &Arc<Proxy>, by: &Requester) -> bool {
    let upstream = &proxy.upstream;
    if !upstream.is_decided() {
        upstream.era_soon(by.credentials.clone()).await;
    }
    upstream.is_decided()
}

/// Notifies the replica that may carry the call which asked this question. The client does not wait for that.
fn tell_passed(proxy: &Arc<Proxy>, by: &Requester, session: SessionKey, question: &RawValue) {
    let may_be_anothers = proxy.companion_of(by).is_some() && proxy.upstream.speaks_http();
    if !may_be_anothers || proxy.runner.is_alone() {
        return;
    }
    let (telling, question) = (Arc::clone(proxy), question.to_owned());
    proxy.passing.spawn(async move {
        let runner = &telling.runner;
        let told = runner.record_passed(session.as_bytes(), question.get());
        if let Err(error) = told.await {
            tracing::warn!(%error, "a call may ask again what its client has answered on another replica");
        }
    });
}
