//! Refuses messages that cannot be read for certain, if a rule may refuse a call: the server could read in such a
//! message the call that the rule refuses.

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use crate::mcp::error::RpcError;

impl Requester {
    /// Checks the headers of a message of a modern client. Its body is checked where it is read.
    pub(super) fn check_headers(&self, headers: &HeaderMap) -> Result<(), RpcError> {
        if self.rules.may_refuse() {
            check_headers(headers)
        } else {
            Ok(())
        }
    }

    /// Checks a message of a legacy client. Without a fault the message passes as it is.
    pub(super) fn check_message(
        &self,
        headers: &HeaderMap,
        message: &Inbound<'_>,
    ) -> Result<(), RpcError> {
        self.check_headers(headers)?;
        if self.rules.may_refuse() {
            message.check_on_session()
        } else {
            Ok(())
        }
    }
}

/// raincheck reads a body as UTF-8. Many servers decode it by its headers, some of them from encodings in which the
/// same bytes are another text (UTF-7).
fn check_headers(headers: &HeaderMap) -> Result<(), RpcError> {
    for value in headers.get_all(CONTENT_ENCODING) {
        let is_none = |word: &str| word.is_empty() || word.eq_ignore_ascii_case("identity");
        let plain = value.to_str().is_ok_and(|value| {
            let mut words = value.split(',').map(str::trim);
            words.all(is_none)
        });
        if !plain {
            return Err(RpcError::invalid_request(
                "Invalid request: Content-Encoding is not allowed here",
            ));
        }
    }
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let kind = kinds.next();
    let is_plain = kind.is_none_or(|kind| kind.to_str().is_ok_and(is_utf8));
    // Of two values, the server may take the one that was not checked.
    if !is_plain || kinds.next().is_some() {
        return Err(RpcError::invalid_request(
            "Invalid request: Content-Type must be application/json in UTF-8",
        ));
    }
    Ok(())
}

/// Returns `true` if no parameter of the content type names another character set.
fn is_utf8(kind: &str) -> bool {
    // Quotes are not honoured: a reader that ignores them, too, could find a character set inside.
    kind.split([';', ',']).skip(1).all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // The name may stand with a space or a suffix, as in `charset =` or `charset*`.
        if !name.to_ascii_lowercase().contains("charset") {
            return true;
        }
        let value = value.trim().trim_matches('"');
        value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_utf8_is_read_as_the_server_reads_it() {
        let is_clear = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            check_headers(&headers).is_ok()
        };
        for clear in [
            &[][..],
            &[("content-type", "application/json")],
            &[("content-type", "Application/JSON; Charset=\"UTF-8\"")],
            &[("content-type", "application/json;v=1;charset=utf8")],
            &[("content-encoding", "identity")],
        ] {
            assert!(is_clear(clear), "{clear:?}");
        }
        for unclear in [
            &[("content-type", "application/json; charset=utf-16")][..],
            &[("content-type", "application/json;charset = utf-7")],
            &[("content-type", "a/b;x=\";\";charset=utf-8;charset=utf-7")],
            &[("content-type", "application/json, a/b;charset=utf-7")],
            &[("content-type", "a/b;charset")],
            &[("content-type", "a/b"), ("content-type", "a/b")],
            &[("content-encoding", "gzip")],
            &[("content-encoding", "identity, br")],
            &[("content-encoding", "identity"), ("content-encoding", "br")],
        ] {
            assert!(!is_clear(unclear), "{unclear:?}");
        }
    }
}
