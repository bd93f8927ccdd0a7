//! Reads the body of an operator's request, which is small and comes at once.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

/// The largest body: as large as the largest answer that a client may give to a question.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The time within which a body must arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads a body. An error is a sentence for the operator.
pub(super) async fn read(body: Incoming) -> Result<Bytes, &'static str> {
    let reading = Limited::new(body, BODY_BYTES_MAX).collect();
    let read = timeout(PATIENCE, reading).await;
    let read = read.map_err(|_elapsed| "the body came too slowly")?;
    let whole = read.map_err(|_| "the body is larger than 1 MiB, or ended early")?;
    Ok(whole.to_bytes())
}
