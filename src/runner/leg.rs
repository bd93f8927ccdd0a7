//! The stored request: what the next leg of a call needs. It never holds a credential.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::jobs::job_call::JobCall;
use crate::mcp::input::is_answer;
use crate::mcp::json::{Object, Writer};
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::task::digest::Digest;
use crate::task::id::TaskId;
use crate::task::question::QuestionStage;
use crate::task::state::Task;
use crate::upstream::{Forwarded, Retry, UpstreamRequest};

/// Returns `true` if the request answers a question of a modern server, and so continues a call there. The state in it is the
/// server's own, and not checked here.
pub(super) fn goes_on(era: Option<Era>, outgoing: &UpstreamRequest) -> bool {
    let is_answer = || Object::parse(&outgoing.params).is_ok_and(|params| is_answer(&params));
    era == Some(Era::Modern) && is_answer()
}

/// A request in the form in which the store keeps it with its task.
#[derive(Debug, Serialize, Deserialize)]
struct StoredRequest {
    method: Arc<str>,
    params: Arc<str>,
    capabilities: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    param_headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_false")]
    native_task: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<Arc<JobCall>>,
    /// The request had no credentials of its client, and went over no session of the client. Earlier versions do not say it.
    #[serde(default, skip_serializing_if = "is_false")]
    is_anybodys: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !flag
}

pub(super) fn store(outgoing: &UpstreamRequest) -> Result<Bytes, StoreError> {
    let headers = outgoing.param_headers.iter();
    let request = StoredRequest {
        method: Arc::clone(&outgoing.method),
        params: Arc::clone(&outgoing.params),
        capabilities: Arc::clone(&outgoing.capabilities),
        name: outgoing.name.clone(),
        native_task: outgoing.native_task,
        job: outgoing.job.clone(),
        is_anybodys: outgoing.is_anybodys(),
        param_headers: headers
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
            .collect(),
    };
    serde_json::to_vec(&request)
        .map(Bytes::from)
        .map_err(|_| StoreError::Corrupt("task request"))
}

/// Builds the request of the next leg, with the headers of the request that brought the last answers.
pub(super) fn next(
    stored: &Bytes,
    task: &Task,
    from: Forwarded,
) -> Result<UpstreamRequest, StoreError> {
    let mut outgoing = read(stored)?.outgoing(task, from);
    outgoing.retry = (task.round > 0).then(|| Arc::new(retry(task)));
    // The request that brought the answers may be of another trace.
    Ok(match &task.trace {
        Some(trace) => outgoing.traced(&trace.to_server()),
        None => outgoing,
    })
}

/// Builds the request of a new call that is the same as the call of this task. `None`: only its client can send it again.
pub(super) fn again(stored: &Bytes, task: &Task) -> Result<Option<UpstreamRequest>, StoreError> {
    let request = read(stored)?;
    if !request.is_anybodys {
        return Ok(None);
    }
    let mut outgoing = request.outgoing(task, Forwarded::default());
    // Under the first key the server would answer with the first job.
    let job = outgoing.job.take().map(Arc::unwrap_or_clone);
    let key = || TaskId::random().to_string();
    outgoing.job = job.map(|job| Arc::new(job.with_key(key)));
    Ok(Some(outgoing))
}

fn read(stored: &Bytes) -> Result<StoredRequest, StoreError> {
    serde_json::from_slice(stored).map_err(|_| StoreError::Corrupt("task request"))
}

impl StoredRequest {
    fn outgoing(self, task: &Task, from: Forwarded) -> UpstreamRequest {
        let headers = self.param_headers.iter();
        let headers = headers.filter_map(|(name, value)| {
            Some((
                HeaderName::try_from(name).ok()?,
                HeaderValue::try_from(value).ok()?,
            ))
        });
        let answer_patience = task.input_timeout_ms.map(Duration::from_millis);
        let mut outgoing = UpstreamRequest::new(*task.caller.as_bytes(), self.method, self.params)
            .declaring(self.capabilities)
            .forwarding(from)
            .described_by(self.name, headers.collect())
            // The progress goes into the record, which every poller reads, so it is wanted even if the client sent no
            // token.
            .with_progress(true)
            .for_call(answer_patience, self.native_task);
        outgoing.job = self.job;
        outgoing
    }
}

/// Collects all answers of the round, under the server's own keys, and the server's own state.
pub(super) fn retry(task: &Task) -> Retry {
    let mut responses = Writer::object();
    for question in &task.questions {
        if let QuestionStage::Answered(answer) = &question.stage {
            responses.raw(&question.origin, answer.get());
        }
    }
    Retry {
        input_responses: responses.end().into(),
        request_state: task.request_state.as_deref().map(Arc::from),
    }
}

/// Returns the digest of the parts that a retry of the call must repeat, if the call is parked with a question.
pub(super) fn digest(call: &UpstreamRequest) -> Digest {
    let params = Object::parse(&call.params).unwrap_or_default();
    Digest::of_call(&call.method, call.name.as_deref(), params.get("arguments"))
}
