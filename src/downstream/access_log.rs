//! The access log: a line for each message of a client, if the operator wants it.

use std::sync::Arc;

use hyper::Response;
use tokio::time::Instant;

use super::inbound::access::printable_text;
use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use super::proxy::Proxy;
use crate::auth::identity::Identity;
use crate::telemetry::log::AccessLine;

/// The status in the line of a message whose client went away before the answer began, as nginx logs it. No client gets this
/// status.
const CLIENT_WENT_AWAY: u16 = 499;

/// A message that is not answered yet. Dropped without an answer, it was left by its client.
pub(super) struct Accessed {
    /// `None`: it is written.
    line: Option<AccessLine>,
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
        let method = printable_text(method.unwrap_or_default());
        let name = printable_text(name.unwrap_or_default());
        Some(Self {
            line: Some(AccessLine::begin(&method, &name)?),
            client: by.identity.clone(),
            began: Instant::now(),
        })
    }

    /// Writes the line when the answer begins.
    pub(super) fn end<B>(mut self, response: &Response<B>) {
        self.write(response.status().as_u16());
    }

    fn write(&mut self, status: u16) {
        let Some(line) = self.line.take() else { return };
        let client = self.client.as_ref();
        let client = client.and_then(|client| client.label.as_deref());
        let took = Instant::now().saturating_duration_since(self.began);
        line.end(status, took, client.unwrap_or_default());
    }
}

impl Drop for Accessed {
    fn drop(&mut self) {
        self.write(CLIENT_WENT_AWAY);
    }
}
