//! One request of raincheck's own over a line.

use std::sync::Arc;

use super::super::failures::UNREACHABLE;
use super::requests::{Asks, Channel};
use super::said::Said;
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;

/// One request of raincheck's own, of which only the answer is of interest.
pub(in crate::upstream) async fn ask(channel: &Arc<Channel>, method: &str, params: &str) -> Said {
    let Some(mut ticket) = channel.open(Asks::Never) else {
        return Said::Unsent(UNREACHABLE);
    };
    let text = translate::request(&RequestId::number(ticket.id), method, params);
    ticket.send(text).await;
    loop {
        match ticket.next().await {
            Said::Progress(_) | Said::Log(_) | Said::Notice(_) | Said::Question(_) => {}
            answer @ (Said::Result(_)
            | Said::Error(_)
            | Said::Refused(_)
            | Said::Unsent(_)
            | Said::Failed(_)) => return answer,
        }
    }
}
