//! The id of a request whose line cannot be read. Without it, a client would wait on for the answer. Pure.

use crate::mcp::json::Object;
use crate::mcp::request::is_request_id;

/// The bytes that are looked at, at the beginning of a line and at its end.
pub(super) const LOOKED_AT: usize = 512;

/// Returns the id, as JSON, of a request that begins and ends with these bytes. Its members come in any order, and those beside
/// the params are short.
pub(super) fn id_of(begin: &[u8], end: &[u8]) -> Option<Box<str>> {
    let begin = begin.get(..LOOKED_AT).unwrap_or(begin);
    let end = end
        .get(end.len().saturating_sub(LOOKED_AT)..)
        .unwrap_or(end);
    let (begin, end) = (String::from_utf8_lossy(begin), String::from_utf8_lossy(end));
    // What is an object, once it is closed at a comma, is the first members. The last members are one if it is opened there.
    let mut first = begin
        .rmatch_indices(',')
        .filter_map(|(at, _)| Some([begin.get(..at)?, "}"].concat()));
    let mut last = end
        .match_indices(',')
        .filter_map(|(at, comma)| Some(["{", end.get(at + comma.len()..)?].concat()));
    let is_object = |text: &String| Object::parse(text).is_ok();
    let parts = [first.find(is_object), last.find(is_object)];
    let parts: Vec<_> = parts
        .iter()
        .flatten()
        .filter_map(|part| Object::parse(part).ok())
        .collect();
    let member = |name| parts.iter().find_map(|part| part.get(name));
    // Without a method it is an answer, whose id is the server's.
    let id = member("method").and_then(|_| member("id"));
    id.filter(|id| is_request_id(id)).map(|id| id.get().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_at_either_end_of_a_request() {
        let long = "x,".repeat(1000);
        let of = |text: String| id_of(text.as_bytes(), text.as_bytes());
        for (text, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"@","id":8}}"#,
                Some("7"),
            ),
            (r#"{"id":"a","method":"m","params":["@"#, Some("\"a\"")),
            (
                r#"{"method":"m","params":{"a":"@","id":8},"jsonrpc":"2.0","id":7}"#,
                Some("7"),
            ),
            (r#"{"params":{"a":"@"},"method":"m","id":7}"#, Some("7")),
            (r#"{"id":null,"method":"m","params":{"a":"@"}}"#, None),
            (r#"{"method":"m","params":{"a":"@","id":8}}"#, None),
            (r#"{"id":7,"result":{"a":"@","method":"m","id":8}}"#, None),
            ("@", None),
        ] {
            for between in [&long, "\u{e9}", ""] {
                let text = text.replace('@', between);
                assert_eq!(of(text.clone()).as_deref(), id, "{text}");
            }
        }
        let latin = b"{\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"\xe9\"}}\n";
        assert_eq!(id_of(latin, latin).as_deref(), Some("1"));
    }
}
