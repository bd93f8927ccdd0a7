//! The JSON-RPC messages that raincheck writes itself, from parts that are JSON already.

use super::json::Writer;

/// The bytes of an envelope beside its parts.
const AROUND: usize = 64;

/// A request. `id` and `params` are JSON.
pub fn request(id: &str, method: &str, params: Option<&str>) -> String {
    let params_len = params.map_or(0, str::len);
    // Params may be large, and a text that grows copies what it has so far.
    let mut out = begun(id.len() + method.len() + params_len);
    out.raw("id", id).str("method", method);
    if let Some(params) = params {
        out.raw("params", params);
    }
    out.end()
}

/// A notification. `params` are JSON.
pub fn notification(method: &str, params: &str) -> String {
    let mut out = begun(method.len() + params.len());
    out.str("method", method).raw("params", params);
    out.end()
}

pub fn notification_without_params(method: &str) -> String {
    let mut out = begun(method.len());
    out.str("method", method);
    out.end()
}

/// The answer to the request with this id. `id` and `result` are JSON.
pub fn result(id: &str, result: &str) -> String {
    let mut out = begun(id.len() + result.len());
    out.raw("id", id).raw("result", result);
    out.end()
}

/// The error response to the request with this id. `id` and `error` are JSON.
pub fn error(id: &str, error: &str) -> String {
    let mut out = begun(id.len() + error.len());
    out.raw("id", id).raw("error", error);
    out.end()
}

/// The error response to a request whose id was not read. `error` is JSON.
pub fn error_without_id(error: &str) -> String {
    let mut out = begun(error.len());
    out.raw("error", error);
    out.end()
}

fn begun(bytes: usize) -> Writer {
    let mut out = Writer::with_capacity(bytes + AROUND);
    out.str("jsonrpc", "2.0");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_has_what_json_rpc_asks_for() {
        for (written, expected) in [
            (
                request("7", "ping", None),
                r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            ),
            (
                request("\"a\"", "m", Some("{}")),
                r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{}}"#,
            ),
            (
                notification("n", r#"{"a":1}"#),
                r#"{"jsonrpc":"2.0","method":"n","params":{"a":1}}"#,
            ),
            (
                notification_without_params("n"),
                r#"{"jsonrpc":"2.0","method":"n"}"#,
            ),
            (result("1", "{}"), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            (error("1", "{}"), r#"{"jsonrpc":"2.0","id":1,"error":{}}"#),
            (error_without_id("{}"), r#"{"jsonrpc":"2.0","error":{}}"#),
        ] {
            assert_eq!(written, expected);
        }
    }
}
