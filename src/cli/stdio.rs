//! `raincheck stdio`: serves the client that launched it, until a signal comes, or that client closes its side and has its
//! answers.

use std::process::ExitCode;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::failure::CommandFailure;
use super::process::runtime;
use super::run::raise_file_limit;
use crate::app::App;
use crate::base::io_reason::io_reason;
use crate::config::Config;
use crate::platform::group;
use crate::platform::signals::StopSignals;

/// The longest drain: clients wait about this long after they send a signal, and then kill the process.
const GRACE: Duration = Duration::from_millis(1_500);

pub(super) fn serve(mut config: Config) -> Result<ExitCode, CommandFailure> {
    let open_files = raise_file_limit();
    // No load balancer must hear of the drain first, and no other client waits.
    config.drain.delay = Duration::ZERO;
    // Calls keep the whole grace period after the client has closed its side. Only the drain itself must be short.
    let patience = config.drain.grace;
    config.drain.grace = patience.min(GRACE);
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let mut stop =
            StopSignals::with_hangup().map_err(|e| CommandFailure::runtime(format!("no signals: {}", io_reason(&e))))?;
        let (shutdown, ended) = (CancellationToken::new(), CancellationToken::new());
        let upstream = config.upstream.server.to_string();
        let app = App::build_stdio(config, open_files, ended.clone(), patience)
            .await
            .map_err(|e| CommandFailure::runtime(e.to_string()))?;
        info!(%upstream, "serving one client");
        let serving = app.serve(shutdown.clone());
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => return served.map_err(|e| CommandFailure::runtime(e.to_string())),
            () = ended.cancelled() => info!("the client has closed its side"),
            signal = stop.asked() => info!(signal, "draining"),
        }
        shutdown.cancel();
        tokio::select! {
            // `raincheck stdio` never starts without its store, so the error of a store that comes late cannot occur
            // here.
            _served = &mut serving => {}
            signal = stop.asked() => info!(signal, "not drained"),
        }
        Ok(())
    });
    // Below, nothing waits for the jobs that would end the server's processes.
    runtime.block_on(group::end_all());
    // A thread may still wait for the client's next message.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}
