//! Turns `[auth]` into the settings of authentication.

use std::net::IpAddr;

use hyper::Uri;

use super::port::has_right_port;
use super::problem::Problem;
use super::settings::{AuthSettings, JwtSettings, ListenSettings};
use super::{credentials, file_auth};
use crate::auth::algorithm::Algorithm;

pub(super) fn auth(
    written: file_auth::Auth,
    listen: &ListenSettings,
) -> Result<AuthSettings, Problem> {
    let mut jwt = Vec::with_capacity(written.jwt.len());
    for (place, issuer) in written.jwt.into_iter().enumerate() {
        let checked = issuer_of_tokens(issuer, listen, &format!("auth.jwt.{place}"))?;
        if jwt
            .iter()
            .any(|other: &JwtSettings| other.issuer == checked.issuer)
        {
            let text = "is the issuer of another [[auth.jwt]]; write each issuer once";
            return Err(Problem::new(format!("auth.jwt.{place}.issuer"), text));
        }
        jwt.push(checked);
    }
    let auth = AuthSettings {
        allow_anonymous: written.allow_anonymous,
        tokens_file: written.tokens_file.map(Into::into),
        client_roots: written.client_roots.map(Into::into),
        credential_headers: credentials::headers(&written.credential_headers)?,
        jwt,
    };
    if auth.client_roots.is_some() && listen.tls.is_none() {
        return Err(Problem::new(
            "auth.client_roots",
            "clients show certificates over TLS only; set listen.tls, or take this out",
        ));
    }
    if auth.allow_anonymous && auth.asks() {
        return Err(Problem::new(
            "auth.allow_anonymous",
            "is true, but auth.tokens_file, auth.client_roots or [[auth.jwt]] is set, so that every \
             client must say who it is; take one of the two out",
        ));
    }
    Ok(auth)
}

fn issuer_of_tokens(
    written: file_auth::Jwt,
    listen: &ListenSettings,
    key: &str,
) -> Result<JwtSettings, Problem> {
    let refused = |setting: &str, text: String| Problem::new(format!("{key}.{setting}"), text);
    let missing = |setting: &str, text: &str| refused(setting, format!("not set; {text}"));
    let issuer = written.issuer.filter(|issuer| !issuer.is_empty());
    let issuer = issuer.ok_or_else(|| {
        missing(
            "issuer",
            "write the claim \"iss\" of its tokens, exactly, such as \"https://login.example.com\"",
        )
    })?;
    let jwks = written.jwks.ok_or_else(|| {
        missing(
            "jwks",
            "write where its keys are: \"jwks_uri\" of its metadata",
        )
    })?;
    let jwks = keys_url(&jwks).map_err(|text| refused("jwks", text))?;
    let mut audience = written.audience;
    // Clients ask for tokens for this resource (RFC 8707), so it is the audience of their tokens.
    if let Some(public) = listen.public_url.as_ref().filter(|_| audience.is_empty()) {
        audience.push(public.resource.as_ref().to_owned());
    }
    if audience.is_empty() || audience.iter().any(String::is_empty) {
        return Err(missing(
            "audience",
            "write the claim \"aud\" of tokens for this server, such as \"https://tools.example.com/mcp\"; \
             without it the tokens for any other service of the issuer would count here",
        ));
    }
    let algorithms = written.algorithms.iter().map(|name| {
        Algorithm::named(name).ok_or_else(|| {
            let known: Vec<_> = Algorithm::ALL.iter().map(|known| known.name()).collect();
            refused(
                "algorithms",
                format!("{name:?} is not one of {}", known.join(", ")),
            )
        })
    });
    let algorithms = algorithms.collect::<Result<Vec<_>, _>>()?;
    if algorithms.is_empty() {
        return Err(refused(
            "algorithms",
            "is empty: no token could count".into(),
        ));
    }
    if written.roots.is_some() && jwks.scheme_str() != Some("https") {
        return Err(refused(
            "roots",
            "only counts where jwks begins with \"https\"".into(),
        ));
    }
    Ok(JwtSettings {
        issuer,
        jwks,
        audience,
        algorithms,
        caller_claims: written.caller_claims,
        label_claim: written.label_claim,
        roots: written.roots.map(Into::into),
    })
}

/// An address whose answers nothing on the way can forge.
fn keys_url(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().ok().filter(|url| {
        let authority = url.authority().map_or("", |authority| authority.as_str());
        url.host().is_some_and(|host| !host.is_empty())
            && !authority.contains('@')
            && has_right_port(url)
    });
    let host = url.as_ref().and_then(Uri::host).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // An IPv4 address that is written as IPv6 is loopback, too.
    let address = host.parse::<IpAddr>().map(|ip| ip.to_canonical());
    let is_local =
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback());
    match (url, text.split_once("://").map(|(scheme, _)| scheme)) {
        (Some(url), Some("https")) => Ok(url),
        (Some(url), Some("http")) if is_local => Ok(url),
        (Some(_), Some("http")) => Err(
            "must begin with \"https\": whoever answers for it could sign tokens (http is for loopback)".into(),
        ),
        // Not quoted: a mistake may hold a password.
        _ => Err("is not an address; write \"https://login.example.com/jwks.json\"".into()),
    }
}
