//! Calls that operators begin again: a new task with the arguments of one that has ended.

use std::sync::Arc;

use super::call::{Announce, CallClient, CallSpec, CallTerms};
use super::claim::{CallClaim, ClaimError};
use super::leg;
use super::state::Runner;
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::task::id::TaskId;
use crate::task::plan::Plan;
use crate::task::policy::{InputWhen, OnOwnerLost};
use crate::task::state::Task;

/// Why a call is not begun again. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum RerunError {
    #[error("the task has not ended: {0}")]
    Open(&'static str),
    #[error(
        "its arguments are not stored: with admin.show_payloads = true they are, of the tasks that begin from then on"
    )]
    NoRequest,
    #[error(
        "the server got credentials, or a session, of the client, which raincheck does not keep: only the client can call again"
    )]
    Personal,
    /// The first call ran, or may have, and the tool is not one that can be repeated.
    #[error("the first call ran, or may have run, and the tool is not declared safe to repeat")]
    MayRunTwice,
    #[error("{0}")]
    NotBegun(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Runner {
    /// Begins the call of a task that has ended once more, for the same caller. Returns the new task, which names the old one;
    /// asked again, the same new task, unless that one failed and did not run. `may_run_twice`: the operator says that the tool may run a second time.
    pub async fn run_again(
        self: &Arc<Self>,
        task: &Task,
        may_run_twice: bool,
    ) -> Result<TaskId, RerunError> {
        let Some(outcome) = &task.outcome else {
            return Err(RerunError::Open(task.status().word()));
        };
        let stored = self.ledger.load_request(task.id).await?;
        let stored = stored.ok_or(RerunError::NoRequest)?;
        let outgoing = leg::again(&stored, task)?.ok_or(RerunError::Personal)?;
        let rules = self.rules();
        let (rule, _) = rules.for_tool(&task.name);
        // By the rule of today, or by the server's word that was believed; a key of the first job says nothing of a second one.
        let is_repeatable = match rule.on_owner_lost {
            OnOwnerLost::Rerun => true,
            OnOwnerLost::Resume => {
                task.on_owner_lost == OnOwnerLost::Rerun && outgoing.job.is_none()
            }
            OnOwnerLost::Fail => false,
        };
        let (_, _, effect) = outcome.words();
        let did_run_nothing = effect == "none" || task.was_never_sent();
        let claim = CallClaim::of_rerun(task.id, leg::digest(&outgoing));
        let is_asked = !did_run_nothing && !is_repeatable && !may_run_twice;
        // An operator who asks again gets the task that was begun.
        if is_asked && self.kv.find(claim.name).await?.is_none() {
            return Err(RerunError::MayRunTwice);
        }
        let terms = CallTerms {
            plan: Plan::Always {
                input: InputWhen::InTask,
            },
            announce: Announce::Task,
            native_task: outgoing.native_task,
            job: outgoing.job.clone(),
            repeatable: task.on_owner_lost == OnOwnerLost::Rerun,
            ..CallTerms::held(self.upstream.known_era(), rule)
        };
        let client = CallClient {
            caller: task.caller,
            label: task.label.clone(),
            // Questions wait in the task.
            era: Era::Modern,
            list_key: task.listed.then_some(task.caller),
            session: None,
            gives_up_as: None,
            program: 0,
            note: None,
            running: None,
            related: vec![task.id],
            span: None,
        };
        let call = CallSpec::of(client, terms, outgoing, None);
        // Nobody waits for the answer: the task is there once this returns.
        drop(self.call_once(claim, call).await?);
        let begun = self.kv.find(claim.name).await?;
        let begun = begun.map(|value| claim.read(&value)).transpose()?.flatten();
        begun.ok_or_else(|| StoreError::Corrupt("a claim that is gone").into())
    }
}

impl From<ClaimError> for RerunError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::OtherCall => Self::NotBegun("another call was begun in its place".into()),
            ClaimError::StoreUnavailable => {
                Self::Store(StoreError::Unavailable("it does not answer".into()))
            }
            ClaimError::AdmitError(why) => Self::NotBegun(why.failure().message()),
        }
    }
}
