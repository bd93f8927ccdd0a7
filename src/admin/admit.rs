//! The operators who may ask at the admin listener: their tokens, names and rights. Pure.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::listener::{AdminBody, error};
use super::token::Token;
use crate::task::cancelled_by::CancelledBy;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A token of the admin listener, and whose it is.
#[derive(Debug)]
pub struct OperatorToken {
    pub token: Token,
    pub rights: Rights,
}

/// The name and the rights of an operator.
#[derive(Debug, Clone)]
pub struct Rights {
    /// `None`: the settings have no name for the operator.
    pub name: Option<Arc<str>>,
    /// `false`: the operator sees everything and changes nothing.
    pub may_act: bool,
}

/// The operator behind one request.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) peer: SocketAddr,
    rights: Rights,
}

impl Asker {
    pub(super) fn name(&self) -> Option<&str> {
        self.rights.name.as_deref()
    }

    /// The operator as the party that cancels tasks.
    pub(super) fn cancels(&self) -> CancelledBy {
        CancelledBy::Operator(self.rights.name.clone())
    }

    pub(super) fn to_json(&self) -> Value {
        let role = if self.rights.may_act { "act" } else { "read" };
        json!({ "name": self.name(), "role": role })
    }

    /// Refuses a request that acts to an operator who may only read.
    pub(super) fn check(&self, method: &Method) -> Result<(), Box<Response<AdminBody>>> {
        if self.rights.may_act || *method == Method::GET {
            return Ok(());
        }
        let name = self.name().unwrap_or_default();
        let text = format!(
            "{name} may read and not act: role is \"read\" in [[admin.operators]] of the settings"
        );
        Err(Box::new(error(StatusCode::FORBIDDEN, &text)))
    }
}

/// Returns the operator who asks. `operators`: those with tokens; if there are none, a request to a loopback name may do
/// everything.
pub(super) fn admit(
    operators: &[OperatorToken],
    headers: &HeaderMap,
    peer: SocketAddr,
) -> Result<Asker, Box<Response<AdminBody>>> {
    if operators.is_empty() {
        // A page in a browser may reach loopback under a name of its own (DNS rebinding).
        if !names_loopback(headers) {
            let text = "without a token (admin.token, [[admin.operators]]), ask by a loopback name such as localhost";
            return Err(Box::new(error(StatusCode::FORBIDDEN, text)));
        }
        let rights = Rights {
            name: None,
            may_act: true,
        };
        return Ok(Asker { peer, rights });
    }
    let said = bearer(headers).unwrap_or_default();
    // All are compared, so that the time of an answer does not show whose token is nearly right.
    let found = operators.iter().fold(None, |found, operator| {
        let is_theirs = operator.token.is(said);
        if is_theirs { Some(operator) } else { found }
    });
    if let Some(operator) = found {
        let rights = operator.rights.clone();
        return Ok(Asker { peer, rights });
    }
    let text = "Authorization must be Bearer and the token of an operator (admin.token, [[admin.operators]])";
    let mut refusal = error(StatusCode::UNAUTHORIZED, text);
    let headers = refusal.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(refusal))
}

/// Returns `true` if the request was not sent by a page of another origin. Only browsers send these headers. A page
/// of any origin can make a browser send a POST to loopback, or occupy the readers of events with GETs whose answers
/// the page cannot read.
pub(super) fn is_of_our_page(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    // `none` stands for a request that a person began, such as a bookmark.
    if sites.any(|site| site != "same-origin" && site != "none") {
        return false;
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    headers.get_all(ORIGIN).iter().all(|origin| {
        // The origin `null` has no host, so it is refused.
        let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
        origin.is_some_and(|(_, origin)| Some(origin) == host)
    })
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    // `Authorization` is no list (RFC 9110), so a request with two of them has none that counts.
    let (Some(value), None) = (all.next(), all.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

fn names_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host else { return false };
    // `[::1]` has colons, too, so only digits after the last one are a port.
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let name = without_port.trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

    fn operator(token: &str, reader: Option<&str>) -> OperatorToken {
        OperatorToken {
            token: Token::new(token),
            rights: Rights {
                name: reader.map(Into::into),
                may_act: reader.is_none(),
            },
        }
    }

    fn admits(token: Option<&str>, pairs: &[(&'static str, &'static str)]) -> Option<StatusCode> {
        let operators: Vec<_> = token
            .map(|token| operator(token, None))
            .into_iter()
            .collect();
        let refusal = admit(&operators, &headers(pairs), PEER).err()?;
        Some(refusal.status())
    }

    #[test]
    fn without_a_token_only_loopback_names_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8442",
            "127.0.0.1:8442",
            "[::1]:8442",
            "127.9.9.9",
        ] {
            assert_eq!(admits(None, &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example:8442",
            "10.0.0.1",
            "localhost.evil.example",
            "",
        ] {
            let refused = admits(None, &[("host", host)]);
            assert_eq!(refused, Some(StatusCode::FORBIDDEN), "{host}");
        }
        assert_eq!(admits(None, &[]), Some(StatusCode::FORBIDDEN));
    }

    #[test]
    fn with_a_token_only_the_token_is_answered() {
        let token = Some("correct-horse-battery");
        let said = |value| admits(token, &[("authorization", value), ("host", "localhost")]);
        assert_eq!(said("Bearer correct-horse-battery"), None);
        assert_eq!(said("bearer  correct-horse-battery"), None);
        for wrong in [
            "Bearer correct-horse-batterx",
            "Bearer",
            "Bearer ",
            "correct-horse-battery",
            "Basic eDp5",
        ] {
            assert_eq!(said(wrong), Some(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        let twice = [
            ("authorization", "Bearer correct-horse-battery"),
            ("authorization", "Bearer x"),
        ];
        assert_eq!(admits(token, &twice), Some(StatusCode::UNAUTHORIZED));
        assert_eq!(
            admits(token, &[("host", "localhost")]),
            Some(StatusCode::UNAUTHORIZED)
        );
    }

    #[test]
    fn each_token_has_its_name_and_its_rights() {
        let all = [
            operator("correct-horse-battery", None),
            operator("battery-horse-correct", Some("ada")),
        ];
        let asks = |value| admit(&all, &headers(&[("authorization", value)]), PEER);
        let nameless = asks("Bearer correct-horse-battery").unwrap();
        assert_eq!(nameless.to_json(), json!({"name": null, "role": "act"}));
        assert!(nameless.check(&Method::POST).is_ok());
        assert_eq!(nameless.cancels(), CancelledBy::Operator(None));
        let reader = asks("Bearer battery-horse-correct").unwrap();
        assert_eq!(reader.to_json(), json!({"name": "ada", "role": "read"}));
        assert!(reader.check(&Method::GET).is_ok());
        for acts in [Method::POST, Method::DELETE] {
            let refusal = reader.check(&acts).unwrap_err();
            assert_eq!(refusal.status(), StatusCode::FORBIDDEN, "{acts}");
        }
        assert!(asks("Bearer ").is_err() && asks("Bearer ada").is_err());
    }

    #[test]
    fn a_page_of_another_origin_does_not_act() {
        let acts = |pairs: &[(&'static str, &'static str)]| is_of_our_page(&headers(pairs));
        let host = ("host", "localhost:8442");
        assert!(acts(&[host]), "no browser");
        assert!(acts(&[
            host,
            ("origin", "http://localhost:8442"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(!acts(&[host, ("origin", "http://evil.example")]));
        assert!(!acts(&[host, ("origin", "http://localhost:3000")]));
        assert!(!acts(&[host, ("origin", "null")]));
        assert!(!acts(&[host, ("sec-fetch-site", "cross-site")]));
    }
}
