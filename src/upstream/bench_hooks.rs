//! Measures a request to the server until its answer.

use futures_util::StreamExt as _;

use crate::mcp::result::{error_code, is_tool_error};
use crate::telemetry::operation_ending::OperationEnding;
use crate::telemetry::operations::Operation;
use crate::upstream::port::{Event, Exchange};

/// The exchange, with its end counted. An exchange that is dropped before its answer was cancelled.
pub(super) fn measured(exchange: Exchange, operation: Option<Operation>) -> Exchange {
    let Some(operation) = operation else {
        return exchange;
    };
    let mut asking = Asking(Some(operation));
    let events = exchange.events.inspect(move |event| asking.saw(event));
    Exchange {
        events: events.boxed(),
        control: exchange.control,
    }
}

struct Asking(Option<Operation>);

impl Asking {
    fn saw(&mut self, event: &Event) {
        let ending = match event {
            Event::Result(result) if is_tool_error(result.get()) => OperationEnding::ToolError,
            Event::Result(_) => {
                // Clients may call any name, and such names must not fill the metrics. A good result shows that the
                // server has the tool, so its name may become a label.
                self.0.iter().for_each(Operation::prove);
                OperationEnding::Good
            }
            Event::Error(error) => {
                OperationEnding::Code(error_code(&error.error).unwrap_or_default())
            }
            Event::Failed(failure) => OperationEnding::Failed(failure.reason.word()),
            Event::Sent
            | Event::Progress(_)
            | Event::Log(_)
            | Event::Question(_)
            | Event::Job(_)
            | Event::Resumable(_)
            | Event::CredentialsRefused
            | Event::Later(_) => return,
        };
        self.end(ending);
    }

    fn end(&mut self, ending: OperationEnding) {
        if let Some(operation) = self.0.take() {
            operation.end(ending);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.end(OperationEnding::Cancelled);
    }
}
