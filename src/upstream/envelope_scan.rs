//! Reads which members the outermost object of a text has, and its `id`, without keeping the text, and also if the text is no
//! JSON. Pure.

/// The longest id, and the longest name of a member.
const TOKEN_MAX: usize = 256;

/// Which part of the outermost object is read now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum JsonPlace {
    /// The name of a member.
    Name,
    /// The value of the member `id`.
    Id,
    #[default]
    Elsewhere,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum JsonText {
    #[default]
    Outside,
    /// In a string that ends with this quote. Programs in Python write their own quotes.
    Inside(u8),
    /// Behind a backslash.
    Escaped(u8),
}

/// Reads the names of the members of one object, and its `id`.
#[derive(Debug, Default)]
pub(super) struct EnvelopeScan {
    depth: u64,
    text: JsonText,
    place: JsonPlace,
    name: Vec<u8>,
    id: Vec<u8>,
    seen: SeenMembers,
    /// Something else stands before or behind the object.
    pub(super) is_broken: bool,
}

/// Members of the outermost object.
#[derive(Debug, Default)]
struct SeenMembers {
    method: bool,
    result_or_error: bool,
    jsonrpc: bool,
}

impl EnvelopeScan {
    /// The id as it is written.
    pub(super) fn id(&self) -> Option<&str> {
        let id = std::str::from_utf8(self.id.trim_ascii()).ok()?;
        // An id of the full length may have been cut, and would name another request.
        (!id.is_empty() && self.id.len() < TOKEN_MAX).then_some(id)
    }

    /// Returns `true` if the object has a method.
    pub(super) fn is_request(&self) -> bool {
        self.seen.method
    }

    /// Returns `true` if no object is open.
    pub(super) fn is_whole(&self) -> bool {
        self.depth == 0
    }

    pub(super) fn take(&mut self, byte: u8) {
        if let JsonText::Inside(quote) | JsonText::Escaped(quote) = self.text {
            self.keep(byte);
            let is_escaped = matches!(self.text, JsonText::Escaped(_));
            self.text = match byte {
                b'\\' if !is_escaped => JsonText::Escaped(quote),
                byte if byte == quote && !is_escaped => JsonText::Outside,
                _ => JsonText::Inside(quote),
            };
            return;
        }
        match (self.depth, byte) {
            (0, b'{') => {
                self.depth = 1;
                self.place = JsonPlace::Name;
            }
            (0, _) => self.is_broken |= !byte.is_ascii_whitespace(),
            (_, b'"' | b'\'') => {
                self.text = JsonText::Inside(byte);
                self.keep(byte);
            }
            (_, b'{' | b'[') => self.depth += 1,
            // Depth zero was handled above, so this cannot go below it.
            (_, b'}' | b']') => self.depth -= 1,
            (1, b',') => {
                self.place = JsonPlace::Name;
                self.name.clear();
            }
            (1, b':') => self.named(),
            _ => self.keep(byte),
        }
    }

    /// The name of a member is complete.
    fn named(&mut self) {
        let name = self.name.get(1..self.name.len().saturating_sub(1));
        self.place = JsonPlace::Elsewhere;
        match name.unwrap_or_default() {
            b"id" => self.place = JsonPlace::Id,
            b"method" => self.seen.method = true,
            b"result" | b"error" => self.seen.result_or_error = true,
            b"jsonrpc" => self.seen.jsonrpc = true,
            _ => {}
        }
    }

    /// Collects names and ids of the outermost object. Only strings and numbers can be one.
    fn keep(&mut self, byte: u8) {
        let kept = match (self.depth, self.place) {
            (1, JsonPlace::Name) if !byte.is_ascii_whitespace() => &mut self.name,
            (1, JsonPlace::Id) => &mut self.id,
            _ => return,
        };
        if kept.len() < TOKEN_MAX {
            kept.push(byte);
        }
    }
}

/// An answer in a text that is not JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SeenAnswer {
    /// The id as it is written. `null`: it cannot be seen.
    pub(super) id: Box<str>,
    /// Where the object of the answer begins.
    pub(super) at: usize,
}

/// The first object in the text that looks like the answer to a request: it has an id beside a result or an error, or says of
/// itself that it is a message.
pub(super) fn answer_in(text: &[u8]) -> Option<SeenAnswer> {
    let (mut at, mut rest) = (0, text);
    while let Some(begin) = rest.iter().position(|byte| *byte == b'{') {
        at += begin;
        let mut scan = EnvelopeScan::default();
        let mut length = 0;
        for byte in rest.get(begin..).unwrap_or_default() {
            scan.take(*byte);
            length += 1;
            if scan.is_whole() {
                break;
            }
        }
        let id = scan.id();
        let SeenMembers {
            method,
            result_or_error,
            jsonrpc,
        } = scan.seen;
        if result_or_error && !method && (id.is_some() || jsonrpc) {
            let id = id.unwrap_or("null").into();
            return Some(SeenAnswer { id, at });
        }
        // The search goes on behind the object, so that each byte is read once however many objects there are.
        at += length;
        rest = text.get(at..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_seen_in_what_is_no_json() {
        for (text, id, at) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#, "7", 0),
            (r#"{"result":{"id":8,},"id":"a"}"#, r#""a""#, 0),
            (r#"INFO {pid 3} it's done: {"id":7,"result":{}}"#, "7", 24),
            (r#"{"method":"n"}{"id":7,"error":{}}"#, "7", 14),
            ("{'jsonrpc': '2.0', 'id': 7, 'result': {}}", "7", 0),
            (r#"{"id":7,"result":{"text":"cut he"#, "7", 0),
            (r#"{"jsonrpc":"2.0","error":{"m":NaN}}"#, "null", 0),
        ] {
            let seen = answer_in(text.as_bytes());
            assert_eq!(seen, Some(SeenAnswer { id: id.into(), at }), "{text}");
        }
        for other in [
            "INFO loaded 3 plugins",
            r#"{"level":"info","msg":"started"}"#,
            r#"{"level":"error","error":"x"} y"#,
            r#"got {"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
            r#"[{"id":7}"#,
            "{",
        ] {
            assert_eq!(answer_in(other.as_bytes()), None, "{other}");
        }
    }
}
