//! `--stdio`: revision 2025-11-25, one message a line, for bridges that start their server themselves.

use std::io::{self, BufRead as _, Write as _};
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::answer::{Dialect, big_text, call_result, initialized, result};
use crate::request::{Message, Params};
use crate::tools;

const DIALECT: Dialect = Dialect {
    is_modern: false,
    streams: false,
};

/// Answers until the input ends.
pub(crate) fn serve() {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str::<Message<'_>>(&line) else {
            continue;
        };
        let Some(id) = message.id.map(RawValue::get) else {
            continue;
        };
        match (message.method, message.params) {
            ("initialize", params) => {
                let version = params.and_then(|params| params.protocol_version);
                write(&initialized(id, version.unwrap_or("2025-11-25")));
            }
            ("ping", _) => write(&result(id, "{}")),
            ("tools/list", _) => write(&result(id, &tools::list(DIALECT))),
            ("tools/call", Some(params)) => call(id, params),
            _ => write(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
            )),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own sleeps; nothing else runs on it"
)]
fn call(id: &str, params: Params<'_>) {
    let arguments = params.arguments;
    match params.name.unwrap_or_default() {
        "big" => write(&call_result(id, &big_text(&arguments), DIALECT)),
        "slow" if arguments.ms > 0 => {
            let answer = call_result(id, &arguments.nonce, DIALECT);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(arguments.ms));
                write(&answer);
            });
        }
        _ => write(&call_result(id, &arguments.nonce, DIALECT)),
    }
}

fn write(line: &str) {
    let mut out = io::stdout().lock();
    // A client that is gone ends this program by closing its input.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
