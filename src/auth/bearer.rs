//! The bearer token of a request (RFC 6750, section 2.1). Pure.

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

use super::challenge::Denied;

/// A longer token is refused unread.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// A token as it was sent. Whether it can be one is asked only of a token that is not known by its hash, because most
/// are, and tokens are long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent<'h>(&'h [u8]);

const MALFORMED: Denied = Denied::Malformed("Authorization is not \"Bearer\" and one token");

/// The token of the one `Authorization` header. A token anywhere else (query, form) does not count.
pub(super) fn sent(headers: &HeaderMap) -> Result<Sent<'_>, Denied> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Denied::Missing)?.as_bytes();
    // The server may get these headers, too, and could read the other one.
    if values.next().is_some() {
        return Err(Denied::Malformed(
            "there is more than one Authorization header",
        ));
    }
    let space = value.iter().position(|&byte| byte == b' ');
    let (scheme, token) = value.split_at(space.unwrap_or(value.len()));
    if !scheme.is_ascii() {
        return Err(MALFORMED);
    }
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        // A client of another scheme is told which scheme counts here.
        return Err(Denied::Missing);
    }
    let token = without_spaces(token);
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Denied::Invalid("the token is too long"));
    }
    Ok(Sent(token))
}

impl<'h> Sent<'h> {
    pub(super) fn bytes(self) -> &'h [u8] {
        self.0
    }

    /// The token, if its characters are those of tokens.
    pub(super) fn token(self) -> Result<&'h str, Denied> {
        let plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if self.0.is_empty() || !self.0.iter().all(plain) {
            return Err(MALFORMED);
        }
        std::str::from_utf8(self.0).map_err(|_| MALFORMED)
    }
}

fn without_spaces(mut bytes: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn read(values: &[&str]) -> Result<String, Denied> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                AUTHORIZATION,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        sent(&headers)?.token().map(str::to_owned)
    }

    #[test]
    fn one_header_has_one_token() {
        assert_eq!(read(&["Bearer a.b-c_d~e+f/g="]).unwrap(), "a.b-c_d~e+f/g=");
        assert_eq!(read(&["bEARER  a"]).unwrap(), "a");
        assert_eq!(read(&[]), Err(Denied::Missing));
        assert_eq!(read(&["Basic YTpi"]), Err(Denied::Missing));
        assert_eq!(read(&[""]), Err(Denied::Missing));
        for malformed in [
            &["Bearer a", "Bearer a"][..],
            &["Bearer a", "Basic YTpi"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a b"],
            &["Bearer a,b"],
            &["Bearer \"a\""],
            &["Bearer \u{e9}"],
            &["B\u{e9}arer a"],
        ] {
            let refused = read(malformed);
            assert!(
                matches!(refused, Err(Denied::Malformed(_))),
                "{malformed:?}"
            );
        }
    }

    #[test]
    fn a_long_token_is_refused_unread() {
        let most = "a".repeat(TOKEN_BYTES_MAX);
        assert_eq!(read(&[&format!("Bearer {most}")]).unwrap(), most);
        let more = read(&[&format!("Bearer {most}a")]);
        assert_eq!(more, Err(Denied::Invalid("the token is too long")));
    }
}
