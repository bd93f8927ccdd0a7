//! `raincheck health`: whether a running raincheck is ready, for images without a shell.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;

use super::ask::{AdminAnswer, ask};
use super::reach::{ReachArgs, not_reached, reachable};
use crate::cli::failure::CommandFailure;
use crate::cli::process::runtime;
use crate::cli::stdout::print;

#[derive(Debug, Args)]
pub(in crate::cli) struct HealthArgs {
    #[command(flatten)]
    reach: ReachArgs,
    #[arg(
        long,
        help = "Only whether the process runs, and not whether it is ready"
    )]
    live: bool,
}

/// Asks the probe listener if there is one, else the admin listener. The exit code is 0 or 1.
pub(in crate::cli) fn health(args: &HealthArgs) -> Result<ExitCode, CommandFailure> {
    let access = args.reach.access()?;
    let is_named = args.reach.admin.is_some();
    // `--admin` names the admin listener, so it counts before the probe listener of the settings.
    let probes = access.probes.as_deref().filter(|_| !is_named);
    let address = probes.map_or_else(|| args.reach.address(&access), reachable);
    // The probe listener needs no token, and gets none.
    let token = match probes {
        Some(_) => None,
        None => args.reach.reading_token(&access),
    };
    let path = if args.live { "/livez" } else { "/readyz" };
    let asked = runtime()?.block_on(ask(&address, token.as_ref(), Method::GET, path, None));
    let AdminAnswer { status, text } = asked.map_err(|why| not_reached(&address, &why))?;
    if status == 401 {
        let why = format!(
            "{address} wants the token of an operator: set RAINCHECK_ADMIN__TOKEN, or name the settings with --config; \
             a probe needs none at admin.probes"
        );
        return Err(CommandFailure::runtime(why));
    }
    print(format!("{}\n", text.trim_end()))?;
    Ok(ExitCode::from(u8::from(status != 200)))
}
