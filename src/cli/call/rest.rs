//! The rest of a result that came as an excerpt. A file, or a program behind a pipe, gets the whole result.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::server::read_request;
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::task::large_results::{Part, RANGE_BYTES_MAX, ResultUri};
use crate::upstream::wrapped::{DiscoverError, Upstream};

/// A larger result is not held in memory.
const BYTES_MAX: usize = 256 << 20;

/// The name of the whole result. `None`: the result is whole.
pub(super) fn whole_of(result: &RawValue) -> Option<ResultUri> {
    // Nearly all results. This search is cheaper than the parse.
    if !result.get().contains("\"resource_link\"") {
        return None;
    }
    let result: Value = serde_json::from_str(result.get()).ok()?;
    let links = result.get("content")?.as_array()?.iter();
    let mut links = links.filter(|block| block.get("type").is_some_and(|it| it == "resource_link"));
    let named = links.find_map(|link| ResultUri::parse(link.get("uri")?.as_str()?))?;
    Some(ResultUri {
        part: Part::Json,
        limit: Some(RANGE_BYTES_MAX as u64),
        ..ResultUri::whole(named.task)
    })
}

/// Reads the whole result in ranges. The error says what became of it.
pub(super) async fn read_whole(
    upstream: &Upstream,
    mut range: ResultUri,
) -> Result<Box<RawValue>, String> {
    let mut text = String::new();
    loop {
        let uri: Arc<str> = range.to_string().into();
        let read = upstream.ask(Era::Modern, read_request(&uri)).await;
        let read: Value = serde_json::from_str(read.map_err(|error| gone(&error))?.get())
            .map_err(|_| NOT_READ.to_owned())?;
        let part = read.pointer("/contents/0/text").and_then(Value::as_str);
        text.push_str(part.ok_or(NOT_READ)?);
        if text.len() > BYTES_MAX {
            let mib = BYTES_MAX >> 20;
            return Err(format!("the result is larger than {mib} MiB: read {uri}"));
        }
        let next = read.pointer("/_meta/io.raincheck~1range/nextOffset");
        match next.and_then(Value::as_u64) {
            None => break,
            Some(next) if next > range.offset => range.offset = next,
            Some(_) => return Err(NOT_READ.to_owned()),
        }
    }
    RawValue::from_string(text).map_err(|_| NOT_READ.to_owned())
}

const NOT_READ: &str =
    "the result came as an excerpt, and the server does not give its rest in ranges";

fn gone(error: &DiscoverError) -> String {
    let why = match error {
        DiscoverError::Refused(error) | DiscoverError::Unauthorized(error) => {
            let message = result::error_message(&error.error).unwrap_or_default();
            format!("the server answered: {message}")
        }
        DiscoverError::Failed(failure) => failure.sentence().to_owned(),
    };
    format!("the result came as an excerpt, and its rest is gone: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_names_its_whole() {
        let id = "3ad6b4fd-737e-47b0-aa3e-9980ad6444a1";
        let of = |kind: &str, uri: &str| {
            let result =
                format!(r#"{{"content":[{{"type":"text"}},{{"type":"{kind}","uri":"{uri}"}}]}}"#);
            whole_of(&RawValue::from_string(result).unwrap()).map(|uri| uri.to_string())
        };
        let whole = format!("raincheck://task/{id}/result?as=json&limit=1048576");
        for query in ["", "?block=2"] {
            let uri = format!("raincheck://task/{id}/result{query}");
            assert_eq!(of("resource_link", &uri).as_ref(), Some(&whole));
            assert_eq!(of("text", &uri), None);
        }
        assert_eq!(of("resource_link", "file:///a"), None);
    }
}
