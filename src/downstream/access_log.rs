//! The access log: a line for each message of a client, if the operator wants it.

use std::sync::Arc;

use hyper::Response;
use tokio::time::Instant;

use super::inbound::access::printable;
use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use super::proxy::Proxy;
use crate::auth::identity::Identity;
use crate::telemetry::log::AccessLine;

/// A message that is not answered yet.
pub(super) struct Accessed {
    line: AccessLine,
    client: Option<Arc<Identity>>,
    began: Instant,
}

impl Accessed {
    /// `None`: there is no access log.
    pub(super) fn begin(proxy: &Proxy, by: &Requester, message: &Inbound<'_>) -> Option<Self> {
        if !proxy.live.has_access_log() {
            return None;
        }
        let method = message.members().and_then(|it| it.get_str("method"));
        let name = message.params().and_then(|it| it.get_str("name"));
        let method = printable(method.as_deref().unwrap_or_default().as_bytes());
        let name = printable(name.as_deref().unwrap_or_default().as_bytes());
        Some(Self {
            line: AccessLine::begin(&method, &name)?,
            client: by.identity.clone(),
            began: Instant::now(),
        })
    }

    /// Writes the line when the answer begins.
    pub(super) fn end<B>(self, response: &Response<B>) {
        let client = self.client.as_ref();
        let client = client.and_then(|client| client.label.as_deref());
        let took = Instant::now().saturating_duration_since(self.began);
        let status = response.status().as_u16();
        self.line.end(status, took, client.unwrap_or_default());
    }
}
