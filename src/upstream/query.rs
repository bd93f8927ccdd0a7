//! The parameters of a request's query that go to the server: the operator's of `upstream.url`, always, and of a
//! client's those that `upstream.forward_query` names. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Uri;
use hyper::http::uri::PathAndQuery;
use url::form_urlencoded;

/// The client's parameters that go to the server.
#[derive(Debug, Clone, Default)]
pub(super) struct QueryRule(Arc<[String]>);

impl QueryRule {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.into())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parameters of a client's query that go to the server, in one spelling, so that every reader sees the same
    /// names in them. `None`: there are none.
    pub(super) fn of(&self, query: Option<&str>) -> Option<Arc<str>> {
        if self.is_empty() {
            return None;
        }
        let mut kept = form_urlencoded::Serializer::new(String::new());
        for (name, value) in parameters(query?) {
            if self.0.iter().any(|taken| *taken == name) {
                kept.append_pair(&name, &value);
            }
        }
        let kept = kept.finish();
        (!kept.is_empty()).then(|| kept.into())
    }
}

/// The parameters of a query, decoded. Some servers also separate them by ";".
fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query
        .split(';')
        .flat_map(|part| form_urlencoded::parse(part.as_bytes()))
}

/// Returns `true` if a query has a parameter of that name. Some servers do not distinguish upper case from lower
/// case.
fn names(query: &str, name: &str) -> bool {
    parameters(query).any(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// The target with those parameters of `further` that its own query does not have.
pub(super) fn joined(target: &Uri, further: &str) -> Uri {
    let own = target.query().unwrap_or_default();
    let mut query = own.to_owned();
    for parameter in further.split('&') {
        let mut named = parameters(parameter);
        // A parameter that the target has already stays, because a client must not replace one of the operator's.
        if named.all(|(name, _)| !names(own, &name)) && !parameter.is_empty() {
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(parameter);
        }
    }
    let joined = format!("{}?{query}", target.path());
    let mut parts = target.clone().into_parts();
    match joined.parse::<PathAndQuery>() {
        Ok(joined) if !query.is_empty() => parts.path_and_query = Some(joined),
        // A query that makes no valid target is left out, and the request goes to the target without it.
        _ => {}
    }
    Uri::from_parts(parts).unwrap_or_else(|_| target.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATORS: &str = "/mcp?toolsets=core,alerting&profile=readonly";

    #[test]
    fn the_operators_parameters_win_in_every_spelling() {
        let operators: Uri = OPERATORS.parse().unwrap();
        let rule = QueryRule::new(&["tenant".into(), "profile".into(), "Profile".into()]);
        for (client, sent) in [
            ("profile=admin", ""),
            ("Profile=admin", ""),
            ("pro%66ile=admin", ""),
            ("who=bob;profile=admin", ""),
            ("who=bob%26profile=admin&profile=admin&profile=admin", ""),
            ("", ""),
            ("&&;;", ""),
            ("tenant=a", "&tenant=a"),
            ("tenant=a;profile=admin", "&tenant=a"),
            (
                "%74enant=a%26profile%3Dadmin",
                "&tenant=a%26profile%3Dadmin",
            ),
            (
                "Tenant=b&tenant=a+b&tenant=c%2Fd",
                "&tenant=a+b&tenant=c%2Fd",
            ),
            ("tenant", "&tenant="),
        ] {
            let forwarded = rule.of(Some(client));
            let target = forwarded.map_or_else(|| operators.clone(), |it| joined(&operators, &it));
            assert_eq!(target.to_string(), format!("{OPERATORS}{sent}"), "{client}");
        }
    }

    #[test]
    fn nothing_of_a_client_is_forwarded_by_default() {
        let rule = QueryRule::default();
        assert_eq!(rule.of(Some("tenant=a&profile=admin")), None);
    }

    #[test]
    fn a_target_without_a_query_gets_one() {
        for (target, further, expected) in [
            ("/mcp", "a=1", "/mcp?a=1"),
            ("/mcp?", "a=1&b=2", "/mcp?a=1&b=2"),
            (
                "/m?session_id=x",
                "session_id=y&key=k,l",
                "/m?session_id=x&key=k,l",
            ),
            ("/m?session_id=x", "", "/m?session_id=x"),
            ("/mcp", "", "/mcp"),
        ] {
            let target: Uri = target.parse().unwrap();
            assert_eq!(joined(&target, further).to_string(), expected);
        }
    }
}
