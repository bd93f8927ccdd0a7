//! The data that the record of a call keeps for a client that follows the call by a ticket, so that the client finds
//! the ticket again. Pure.

use serde::{Deserialize, Serialize};

use super::id::Caller;
use crate::mcp::json::Object;

/// The longest short form of arguments, in characters.
const SHORT_MAX: usize = 120;

/// A ticket's description of its call. Only the client that made the call may see it: the arguments may hold a
/// secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct TicketTerms {
    /// The arguments, or their beginning.
    arguments: Box<str>,
    /// The session whose list names the call, where no caller has a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<Caller>,
}

impl std::fmt::Debug for TicketTerms {
    /// Without the arguments: no log may have them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketTerms")
    }
}

impl TicketTerms {
    /// `params`: of the call, as JSON.
    pub fn new(params: &str, session: Option<Caller>) -> Self {
        let params = Object::parse(params).unwrap_or_default();
        let arguments = params.get("arguments").map_or("{}", |raw| raw.get());
        Self {
            arguments: short(arguments),
            session,
        }
    }

    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    pub(super) fn session(&self) -> Option<Caller> {
        self.session
    }
}

/// JSON without white space, cut off where it is long. Reads no further than the cut, however long the JSON is.
fn short(json: &str) -> Box<str> {
    let (mut short, mut is_in_string, mut is_escaped) = (String::new(), false, false);
    // Counted apart, because the length of a text is in bytes.
    let mut written = 0;
    for c in json.chars() {
        if !is_in_string && c.is_ascii_whitespace() {
            continue;
        }
        if written == SHORT_MAX {
            short.pop();
            short.push('…');
            break;
        }
        short.push(c);
        written += 1;
        if c == '"' && !is_escaped {
            is_in_string = !is_in_string;
        }
        is_escaped = is_in_string && c == '\\' && !is_escaped;
    }
    short.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(params: &str) -> String {
        TicketTerms::new(params, None).arguments().to_owned()
    }

    #[test]
    fn arguments_are_shown_as_they_were_sent_without_white_space() {
        assert_eq!(shown(r#"{"name":"x"}"#), "{}");
        assert_eq!(
            shown("{\"arguments\": {\n \"a b\" : [1, \"c \\\" d\"],\t\"e\": 1.10 } }"),
            r#"{"a b":[1,"c \" d"],"e":1.10}"#
        );
        assert_eq!(
            shown(r#"{"arguments":{"a":"\\" , "b":1}}"#),
            r#"{"a":"\\","b":1}"#
        );
    }

    #[test]
    fn long_arguments_are_cut_between_characters() {
        for (text, ends) in [("é".repeat(200), "é…"), ("🐢".repeat(200), "🐢…")] {
            let short = shown(&format!(r#"{{"arguments":{{"t":"{text}"}}}}"#));
            assert_eq!(short.chars().count(), SHORT_MAX);
            assert!(short.ends_with(ends), "{short}");
        }
        let fits = format!(r#"{{"t":"{}"}}"#, "x".repeat(SHORT_MAX - 8));
        assert_eq!(shown(&format!(r#"{{"arguments":{fits}}}"#)), fits);
    }

    #[test]
    fn no_log_shows_the_arguments() {
        let terms = TicketTerms::new(r#"{"arguments":{"password":"hunter2"}}"#, None);
        assert!(!format!("{terms:?}").contains("hunter2"));
    }
}
