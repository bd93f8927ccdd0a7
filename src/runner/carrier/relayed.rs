//! Questions of a legacy server to a legacy client that waits for its call: relayed as they are, and
//! the answers passed back, for as long as there is no record.

use super::super::outcome;
use super::super::seat::{Answer, Answered, Reply};
use super::{Carrier, Flow};
use crate::mcp::json::Writer;
use crate::upstream;

impl Carrier {
    pub(super) async fn relay_question(&mut self, question: upstream::Question) {
        let mut out = Writer::object();
        out.str("jsonrpc", "2.0").raw("id", &question.id);
        out.str("method", &question.method);
        if let Some(params) = &question.params {
            out.raw("params", params.get());
        }
        if let Some(seat) = &self.seat {
            seat.send(Reply::Relay(out.end()), self.deadline).await;
        }
        // Until it is answered: a record would have it as its own.
        self.asked.push(question);
    }

    /// The client answered. What became the record's question meanwhile is answered there.
    pub(super) async fn on_answered(&mut self, answered: Answered) -> Flow {
        let Answered { id, answer } = answered;
        let asked = self.asked.len();
        self.asked.retain(|question| question.id != id);
        let (true, Some(exchange)) = (self.asked.len() < asked, &self.exchange) else {
            return Flow::Continue;
        };
        match exchange.control.answer(&id, answer).await {
            Ok(()) => Flow::Continue,
            Err(failure) => {
                self.on_end(outcome::failed(failure), Answer::Failed(failure))
                    .await
            }
        }
    }
}
