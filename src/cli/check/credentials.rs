//! The credentials of clients that the wrapped server gets, and the consequence when a process dies.

use crate::config::{Config, CredentialUse, Wrapped};

/// `None`: the server is a program, which gets none.
pub(super) fn credentials(config: &Config) -> Option<String> {
    let upstream = &config.upstream;
    if matches!(upstream.server, Wrapped::Command(_)) {
        return None;
    }
    let of_one_client =
        "a call that came with some is carried on by another process when its client asks again";
    let text = match (
        upstream.credentials.used,
        &upstream.credentials.caller_header,
    ) {
        (CredentialUse::Forward, None) => {
            format!("clients' own credentials go to the server; {of_one_client}")
        }
        (CredentialUse::Forward, Some(name)) => format!(
            "clients' own credentials go to the server, and who calls (in {name}); a call is carried on by another process \
             when its client asks again"
        ),
        (CredentialUse::Strip, None) => {
            "clients' own credentials do not go to the server".to_owned()
        }
        (CredentialUse::Static, None) => {
            "the credentials of upstream.headers go to the server, and no client's own".to_owned()
        }
        (CredentialUse::Strip | CredentialUse::Static, Some(name)) => format!(
            "clients' own credentials do not go to the server, but who calls does (in {name}); a call is carried on by another \
             process when its client asks again"
        ),
    };
    Some(text)
}
