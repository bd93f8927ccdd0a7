//! The access log: a line for each message of a client, if the operator wants it.

use std::sync::Arc;

use hyper::Response;
use tokio::time::Instant;
use tracing::info;

use super::inbound::access::printable;
use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use super::proxy::Proxy;
use crate::auth::identity::Identity;

/// The line of a message that is not answered yet. Boxed, because most processes write none.
pub(super) struct AccessLine(Box<Accessed>);

struct Accessed {
    method: String,
    /// The tool, or the other thing that the request names.
    name: String,
    client: Option<Arc<Identity>>,
    began: Instant,
}

impl AccessLine {
    /// `None`: there is no access log.
    pub(super) fn begin(proxy: &Proxy, by: &Requester, message: &Inbound<'_>) -> Option<Self> {
        if !proxy.live.has_access_log() {
            return None;
        }
        let method = message.members().and_then(|it| it.get_str("method"));
        let name = message.params().and_then(|it| it.get_str("name"));
        Some(Self(Box::new(Accessed {
            method: printable(method.unwrap_or_default().as_bytes()),
            name: printable(name.unwrap_or_default().as_bytes()),
            client: by.identity.clone(),
            began: Instant::now(),
        })))
    }

    /// Writes the line when the answer begins.
    pub(super) fn end<B>(self, response: &Response<B>) {
        let accessed = self.0;
        let client = accessed.client.as_ref();
        let client = client.and_then(|client| client.label.as_deref());
        info!(
            method = accessed.method,
            name = accessed.name,
            status = response.status().as_u16(),
            seconds = (Instant::now() - accessed.began).as_secs_f64(),
            client = client.unwrap_or_default(),
            "request"
        );
    }
}
