//! One request of raincheck's own over a line.

use std::sync::Arc;

use crate::upstream::channel::event::LineEvent;
use crate::upstream::channel::shared::SharedLine;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::pool::MayAsk;
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;

/// One request of raincheck's own, of which only the answer is of interest.
pub(in crate::upstream) async fn ask(
    line: &Arc<SharedLine>,
    method: &str,
    params: &str,
) -> LineEvent {
    let Some(mut ticket) = line.open(MayAsk::Never) else {
        return LineEvent::Unsent(UNREACHABLE);
    };
    let text = translate::request(&RequestId::number(ticket.id), method, params);
    ticket.send(text).await;
    loop {
        match ticket.next().await {
            LineEvent::Progress(_)
            | LineEvent::Log(_)
            | LineEvent::Notice(_)
            | LineEvent::Question(_) => {}
            answer @ (LineEvent::Result(_)
            | LineEvent::Error(_)
            | LineEvent::Refused(_)
            | LineEvent::Unsent(_)
            | LineEvent::Failed(_)) => return answer,
        }
    }
}
