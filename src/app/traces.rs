//! Builds the way to the collector of traces from the configuration.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::{AppError, line};
use crate::config::{Config, TraceProtocol, TraceSettings};
use crate::net::http_address::HttpAddress;
use crate::telemetry::traces::{self, Collector};
use crate::tls::client::{self, Files};

/// The time that the export of the last spans may take when the process ends.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// The export of spans.
#[derive(Debug, Default)]
pub(super) struct TraceExport {
    jobs: TaskTracker,
    stop: CancellationToken,
}

impl TraceExport {
    /// Makes and exports spans from now on, if there is a collector.
    pub(super) fn begin(config: &Config) -> Result<Self, AppError> {
        let begun = Self::default();
        if let Some(settings) = &config.telemetry.traces {
            let collector = collector(settings).map_err(AppError)?;
            // Of several parts in one process only the first exports.
            if let Some(queue) = traces::begin(settings.ratio.as_f64()) {
                let stop = begun.stop.clone();
                begun
                    .jobs
                    .spawn(traces::export(collector, queue, stop, LAST_SPANS));
            }
        }
        // `finish` waits on this tracker, and an open one is never done, also without a collector.
        begun.jobs.close();
        Ok(begun)
    }

    /// Exports what still waits. Call it when nothing makes spans any more.
    pub(super) async fn finish(&self) {
        self.stop.cancel();
        // The exporter ends by itself after `LAST_SPANS`. The rest is for counting the spans that it drops.
        let _ = timeout(LAST_SPANS + Duration::from_millis(100), self.jobs.wait()).await;
    }
}

fn collector(settings: &TraceSettings) -> Result<Collector, String> {
    let is_grpc = settings.protocol == TraceProtocol::Grpc;
    let tls = match settings.endpoint.scheme_str() {
        Some("https") => {
            let files = Files {
                roots: settings.roots.clone(),
                identity: None,
                http2: is_grpc,
            };
            let tls = client::client(files);
            Some(tls.map_err(|error| format!("telemetry.traces.roots: {}", line(error)))?)
        }
        _ => None,
    };
    let address = HttpAddress::new(&settings.endpoint, tls)
        .ok_or("telemetry.traces.endpoint: nothing can be sent there")?
        .through_proxy(&settings.endpoint)
        .map_err(|error| format!("telemetry.traces.endpoint: {error}"))?;
    let mut headers = HeaderMap::new();
    for header in &settings.headers {
        // The values were checked when the settings were read, so none is left out here.
        if let Ok(mut value) = HeaderValue::from_str(header.value.expose()) {
            // Debug output leaves out a sensitive value.
            value.set_sensitive(true);
            headers.insert(header.name.clone(), value);
        }
    }
    Ok(Collector {
        address,
        headers,
        resource: settings.resource.clone(),
        is_grpc,
    })
}

/// Where spans go, for `raincheck check`, which sends an empty batch there. `None`: there are no traces.
pub async fn check(config: &Config) -> Option<Result<String, String>> {
    let settings = config.telemetry.traces.as_ref()?;
    let address = without_query(settings);
    let tried = async {
        traces::probe(&collector(settings)?).await.map_err(|why| {
            format!("{address}: the collector does not take spans: {why} (calls are not affected)")
        })
    };
    let percent = settings.ratio.as_f64() * 100.0;
    let taken = tried.await;
    Some(taken.map(|()| format!("to {address}, {percent} % of the traces that begin here")))
}

/// A query may be a secret.
fn without_query(settings: &TraceSettings) -> String {
    let text = settings.endpoint.to_string();
    text.split('?').next().unwrap_or_default().to_owned()
}
