//! Which headers of a client are its credentials, and what the wrapped server gets of them.

use std::collections::{BTreeMap, BTreeSet};

use hyper::header::{AUTHORIZATION, HeaderName};

use super::file;
use super::headers::{is_ours, one_reading};
use super::problem::Problem;
use super::server::Wrapped;
use super::settings::AuthSettings;
use super::settings_upstream::{CredentialUse, Header, UpstreamCredentials, UpstreamSettings};
use crate::mcp::header_names::reading;

/// Reads `auth.credential_headers`.
pub(super) fn headers(written: &[String]) -> Result<Vec<HeaderName>, Problem> {
    let named = written.iter().map(|name| {
        if name == "authorization" {
            let text = "\"authorization\" is a credential without being named; take it out";
            return Err(Problem::new("auth.credential_headers", text));
        }
        name_of(name).map_err(|text| Problem::new("auth.credential_headers", text))
    });
    // A set, so that a name that is written twice is one header.
    let named: BTreeSet<_> = named
        .map(|named| named.map(|name| name.as_str().to_owned()))
        .collect::<Result<_, Problem>>()?;
    let parsed = named.iter().filter_map(|name| name.parse().ok());
    Ok(parsed.collect())
}

fn name_of(name: &str) -> Result<HeaderName, String> {
    let Ok(parsed) = name.parse::<HeaderName>() else {
        return Err(format!(
            "{name:?} is not the name of a header; write \"x-api-key\""
        ));
    };
    // The parser makes names lower case, so another spelling would look like a second header.
    if parsed.as_str() != name {
        return Err(format!(
            "{name:?} must be in lower case: {:?}",
            parsed.as_str()
        ));
    }
    if is_ours(name) {
        return Err(format!(
            "{name:?} belongs to HTTP, to MCP or to raincheck; take it out"
        ));
    }
    one_reading(name)?;
    Ok(parsed)
}

/// Reads what the server gets of its clients' credentials, from `[upstream]` alone.
pub(super) fn of_upstream(
    file: &file::Upstream,
    server: &Wrapped,
    headers: &[Header],
) -> Result<UpstreamCredentials, Problem> {
    let refused = |setting: &str, text: &str| {
        Err(Problem::new(format!("upstream.{setting}"), text.to_owned()))
    };
    let has_own = headers.iter().any(|header| header.name == AUTHORIZATION);
    let is_one = file.same_resource || server.is_local();
    let used = match file.credentials {
        // Credentials of the operator replace those of every client, so they decide first.
        None if has_own => CredentialUse::Static,
        None if is_one => CredentialUse::Forward,
        None => CredentialUse::Strip,
        Some(written) => written,
    };
    match used {
        CredentialUse::Forward if has_own => refused(
            "credentials",
            "is \"forward\", but upstream.headers.authorization takes the place of every client's; take one of \
             the two out",
        ),
        CredentialUse::Forward if !is_one => refused(
            "credentials",
            "is \"forward\", and the server is on another machine: a token is for the one that it was issued \
             for. Set upstream.same_resource = true if raincheck and the server are one resource, whose \
             tokens have one audience; or write \"strip\" or \"static\"",
        ),
        CredentialUse::Static if !has_own => refused(
            "credentials",
            "is \"static\", but upstream.headers.authorization is not set",
        ),
        CredentialUse::Strip if has_own => refused(
            "credentials",
            "is \"strip\", but upstream.headers.authorization is set: write \"static\", or take that out",
        ),
        _ if file.same_resource && used != CredentialUse::Forward => refused(
            "same_resource",
            "is true, but no client's credentials go to the server; take it out",
        ),
        CredentialUse::Forward | CredentialUse::Static | CredentialUse::Strip => {
            let caller_header = file.caller_header.as_deref().map(name_of).transpose();
            let caller_header =
                caller_header.map_err(|text| Problem::new("upstream.caller_header", text))?;
            Ok(UpstreamCredentials {
                used,
                caller_header,
            })
        }
    }
}

/// Checks that `[auth]` and `[upstream]` fit together. `is_asked`: clients come over the network, and not over a
/// pipe.
pub(super) fn fit(
    auth: &AuthSettings,
    upstream: &UpstreamSettings,
    is_asked: bool,
) -> Result<(), Problem> {
    let further = &upstream.forward_headers;
    if let Some(name) = auth
        .credential_headers
        .iter()
        .find(|it| further.contains(it))
    {
        let text = format!(
            "{:?} is one of auth.credential_headers, which go where upstream.credentials says; take it out here",
            name.as_str()
        );
        return Err(Problem::new("upstream.forward_headers", text));
    }
    one_spelling(auth, upstream)?;
    let Some(name) = &upstream.credentials.caller_header else {
        return Ok(());
    };
    let text = if is_asked && !auth.asks() {
        "is set, but nobody is asked who it is: set auth.tokens_file or [[auth.jwt]], or take it out"
    } else if auth.credential_headers.contains(name) {
        "is one of auth.credential_headers: raincheck writes this header itself; take one of the two out"
    } else if further.contains(name) || upstream.headers.iter().any(|it| it.name == *name) {
        "is in upstream.headers or upstream.forward_headers, too; take it out there"
    } else {
        return Ok(());
    };
    Err(Problem::new("upstream.caller_header", text))
}

/// Refuses two headers that some servers read as one. A client could then write the one in place of the other.
fn one_spelling(auth: &AuthSettings, upstream: &UpstreamSettings) -> Result<(), Problem> {
    let forwarded = upstream.forward_headers.iter();
    let named = forwarded.map(|name| ("upstream.forward_headers", name));
    let credentials = auth.credential_headers.iter();
    let named = named.chain(credentials.map(|name| ("auth.credential_headers", name)));
    let written = upstream.headers.iter().map(|header| &header.name);
    let named = named.chain(written.map(|name| ("upstream.headers", name)));
    let caller = upstream.credentials.caller_header.iter();
    let named = named.chain(caller.map(|name| ("upstream.caller_header", name)));
    let mut first_by_reading = BTreeMap::new();
    for (setting, name) in named {
        let name = name.as_str();
        // One name may be in two sections here. Only two spellings of it are a mistake.
        let first = first_by_reading.entry(reading(name)).or_insert(name);
        if *first != name {
            let text = format!(
                "{name:?} and {first:?} are one header for many servers; take one of the two out"
            );
            return Err(Problem::new(setting, text));
        }
    }
    Ok(())
}
