//! The path of the commands to a running raincheck: its admin listener, and the token for it.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::ask::{AdminAnswer, ask};
use crate::cli::failure::CommandFailure;
use crate::cli::process::runtime;
use crate::config::Secret;
use crate::config::load::{AdminAccess, admin_access, environment, named_token};

/// The address and the token of the raincheck that runs.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReachArgs {
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT",
        help = "Its admin listener [default: admin.listen of the settings, else 127.0.0.1:8442]"
    )]
    pub(super) admin: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "Its settings file, for admin.listen and admin.token; the token, such as your own one of \
                [[admin.operators]], may also be in RAINCHECK_ADMIN__TOKEN"
    )]
    config: Option<PathBuf>,
}

/// The port of the example, where an operator most likely put the listener.
const USUAL: &str = "127.0.0.1:8442";

impl ReachArgs {
    pub(super) fn access(&self) -> Result<AdminAccess, CommandFailure> {
        admin_access(self.config.as_deref(), &environment()).map_err(|problem| {
            let mut failure = CommandFailure::from(problem);
            // A mistake in the file does not end a raincheck that runs.
            failure.text.push_str(" (without --config, --admin HOST:PORT and RAINCHECK_ADMIN__TOKEN reach one that runs)");
            failure
        })
    }

    /// A token with which to read: the operator's own, or else one of the settings.
    pub(super) fn reading_token(&self, access: &AdminAccess) -> Option<Secret> {
        let named = || named_token(self.config.as_deref(), &environment());
        access.token.clone().or_else(|| named().ok().flatten())
    }

    /// The address of the admin listener.
    pub(super) fn address(&self, access: &AdminAccess) -> String {
        let address = self.admin.clone().or_else(|| access.listen.clone());
        reachable(&address.unwrap_or_else(|| USUAL.to_owned()))
    }

    /// Asks, and returns the JSON of a good answer.
    pub(super) fn json(
        &self,
        method: hyper::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, CommandFailure> {
        let access = self.access()?;
        let address = self.address(&access);
        let asked = runtime()?.block_on(ask(&address, access.token.as_ref(), method, path, body));
        let AdminAnswer { status, text } = asked.map_err(|why| not_reached(&address, &why))?;
        // An answer that is no JSON has no `error` either, and is reported by its status below.
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        if (200..300).contains(&status) {
            return Ok(value);
        }
        let why = value.get("error").and_then(Value::as_str);
        let why = why.map_or_else(
            || {
                format!(
                    "{address} answered with HTTP {status}, and not as raincheck answers operators: name the address \
                     of admin.listen with --admin"
                )
            },
            str::to_owned,
        );
        Err(CommandFailure::runtime(match status {
            401 if access.token.is_some() => {
                format!(
                    "{why}, and the token in RAINCHECK_ADMIN__TOKEN or in --config is another one"
                )
            }
            401 => format!(
                "{why}: set RAINCHECK_ADMIN__TOKEN to yours, or name a settings file that has admin.token with --config"
            ),
            _ => why,
        }))
    }
}

pub(super) fn not_reached(address: &str, why: &str) -> CommandFailure {
    CommandFailure::runtime(format!(
        "no raincheck answers at {address}: {why}; set admin.listen there, or name its address with --admin"
    ))
}

/// An address of all interfaces is reached over loopback.
pub(in crate::cli) fn reachable(address: &str) -> String {
    let address = address
        .strip_prefix("http://")
        .unwrap_or(address)
        .trim_end_matches('/');
    match address.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        Some(_) | None => address.to_owned(),
    }
}

/// Asks for the tasks that are related to one, too.
pub(super) const TREE: &str = "?tree=true";

/// The path of a task at the admin listener, and the rest of the path.
pub(super) fn path_of(id: &str, rest: &str) -> String {
    let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    format!("/tasks/{id}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_all_interfaces_is_reached_over_loopback() {
        assert_eq!(reachable("0.0.0.0:8442"), "127.0.0.1:8442");
        assert_eq!(reachable("[::]:8442"), "[::1]:8442");
        assert_eq!(reachable("http://10.0.0.7:8442/"), "10.0.0.7:8442");
    }
}
