//! The calls of a client that lost a ticket, from the store.

use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::service::TaskError;
use crate::task::ticket::CompanionNames;
use crate::task::ticket_list;

/// The reason that a model receives in place of a list.
pub(super) const NOT_TOLD_APART: &str = "Nothing can be listed: this server cannot tell your client from others, because \
    your requests have neither credentials nor a session. The ticket of a call is in the answer to the call.";

/// Returns the open calls of the client, and the last that have ended. `Ok(None)`: raincheck cannot distinguish the
/// client from other clients.
pub(super) async fn list(
    proxy: &Proxy,
    by: &Requester,
    names: &CompanionNames,
) -> Result<Option<String>, TaskError> {
    let Some(list) = &by.list_key else {
        return Ok(None);
    };
    let mut page = proxy.tasks_of(&by.caller).page_of(list, None).await?;
    // The list is of the caller, and this credential of it may lack the scopes of a tool.
    page.tasks
        .retain(|task| Proxy::lacking_scopes(by, &task.name).is_none());
    let now_ms = proxy.runner.ledger().now_ms();
    let has_more = page.last.is_some();
    let text = ticket_list::list(names, by.era, page.tasks, (has_more, now_ms));
    Ok(Some(text))
}
