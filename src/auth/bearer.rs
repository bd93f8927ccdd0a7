//! The bearer token of a request (RFC 6750, section 2.1). Pure.

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

use super::challenge::Denied;

/// A longer token is refused unread.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The token of the one `Authorization` header. A token anywhere else (query, form) does not count.
pub(super) fn token(headers: &HeaderMap) -> Result<&str, Denied> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Denied::Missing)?;
    if values.next().is_some() {
        return Err(Denied::Malformed(
            "there is more than one Authorization header",
        ));
    }
    let malformed = Denied::Malformed("Authorization is not \"Bearer\" and one token");
    let Ok(value) = value.to_str() else {
        return Err(malformed);
    };
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        // A client of another scheme is told which scheme counts here.
        return Err(Denied::Missing);
    }
    let token = token.trim_matches(' ');
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Denied::Invalid("the token is too long"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || !token.bytes().all(plain) {
        return Err(malformed);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<String, Denied> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        token(&headers).map(str::to_owned)
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
