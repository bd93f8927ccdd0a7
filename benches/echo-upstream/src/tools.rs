//! The tools, and how long they take.

use std::time::Duration;

use common::monotonic_ns;
use futures_util::stream;
use hyper::{Response, StatusCode};
use tokio::time::sleep;

use crate::answer::{Body, Dialect, big_text, call_result, event, event_stream, frames, json};
use crate::request::{Params, ToolArguments};
use crate::stats::ActiveCall;

pub(crate) const LIST: &str = r#"[{"name":"fast","description":"answers at once","inputSchema":{"type":"object","properties":{"nonce":{"type":"string"}}}},{"name":"slow","description":"sleeps ms","inputSchema":{"type":"object","properties":{"ms":{"type":"integer"},"nonce":{"type":"string"}}}},{"name":"stream","description":"n progress notifications","inputSchema":{"type":"object","properties":{"n":{"type":"integer"},"interval_ms":{"type":"integer"},"nonce":{"type":"string"}}}},{"name":"big","description":"a result of bytes","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"},"nonce":{"type":"string"}}}}]"#;

/// The tools as the member of a list's result. `cache` is what the modern revision says of the list's life.
pub(crate) fn list(dialect: Dialect) -> String {
    let result_type = dialect.result_type();
    let cache = if dialect.is_modern {
        r#","ttlMs":60000,"cacheScope":"public""#
    } else {
        ""
    };
    format!(r#"{{{result_type}"tools":{LIST}{cache}}}"#)
}

/// Answers `tools/call`.
pub(crate) async fn call(id: &str, params: Params<'_>, dialect: Dialect) -> Response<Body> {
    let arguments = params.arguments;
    match params.name.unwrap_or_default() {
        "fast" => dialect.respond(call_result(id, &arguments.nonce, dialect)),
        "big" => dialect.respond(call_result(id, &big_text(&arguments), dialect)),
        "slow" => slow(id, &arguments, dialect).await,
        "stream" => {
            let token = params.meta.and_then(|meta| meta.progress_token);
            let token = token.map_or("\"t\"", |token| token.get()).to_owned();
            let answer = call_result(id, &arguments.nonce, dialect);
            let progress = Progress::begin(token, &arguments, answer);
            event_stream(frames(stream::unfold(Some(progress), async |left| {
                Some(left?.next_event().await)
            })))
        }
        _ => dialect.refuse(StatusCode::BAD_REQUEST, id, -32602, "unknown tool"),
    }
}

async fn slow(id: &str, arguments: &ToolArguments, dialect: Dialect) -> Response<Body> {
    let active = ActiveCall::begin();
    let answer = call_result(id, &arguments.nonce, dialect);
    let pause = Duration::from_millis(arguments.ms);
    if !dialect.streams {
        sleep(pause).await;
        drop(active);
        return json(StatusCode::OK, answer);
    }
    // The head of the response goes out at once.
    event_stream(frames(stream::once(async move {
        sleep(pause).await;
        drop(active);
        event(&answer)
    })))
}

/// The events of `stream`, and the answer after them.
struct Progress {
    active: ActiveCall,
    next: u64,
    total: u64,
    pause: Duration,
    token: String,
    pad: String,
    answer: String,
}

impl Progress {
    fn begin(token: String, arguments: &ToolArguments, answer: String) -> Self {
        Self {
            active: ActiveCall::begin(),
            next: 1,
            total: arguments.n,
            pause: Duration::from_millis(arguments.interval_ms),
            token,
            pad: ".".repeat(arguments.pad),
            answer,
        }
    }

    /// The next event. It says in `t=` when it was made, so a reader on the same machine can tell how long it took.
    async fn next_event(mut self) -> (String, Option<Self>) {
        if self.next > self.total {
            drop(self.active);
            return (event(&self.answer), None);
        }
        sleep(self.pause).await;
        let notification = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{},"total":{},"message":"t={}{}"}}}}"#,
            self.token,
            self.next,
            self.total,
            monotonic_ns(),
            self.pad
        );
        self.next += 1;
        (event(&notification), Some(self))
    }
}
