//! One request to an admin listener.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::base::io_reason::io_reason;
use crate::config::Secret;

/// A list of 10,000 tasks is smaller.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The time that the listener may take. A large list takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The listener's answer.
#[derive(Debug)]
pub(super) struct AdminAnswer {
    pub(super) status: u16,
    pub(super) text: String,
}

/// Sends one request on a new connection. An error is a phrase for the user.
pub(super) async fn ask(
    address: &str,
    token: Option<&Secret>,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<AdminAnswer, String> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = request.body(Full::new(Bytes::from(body)));
    let request = request.map_err(|_| "that is no address or no task id".to_owned())?;
    let asked = timeout(PATIENCE, exchange(address, request)).await;
    let asked = asked.map_err(|_elapsed| "no answer in time".to_owned())?;
    asked.map_err(|error| io_reason(&error))
}

async fn exchange(
    address: &str,
    request: Request<Full<Bytes>>,
) -> Result<AdminAnswer, Box<dyn std::error::Error + Send + Sync>> {
    let socket = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX);
        let bytes = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(AdminAnswer { status, text })
    };
    tokio::pin!(connection, answer);
    tokio::select! {
        answer = &mut answer => answer,
        // The listener closes after its answer, which was read by then.
        _ = &mut connection => answer.await,
    }
}
