//! The access log: a line for each message of a client, if the operator wants it.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Response;
use tokio::time::Instant;

use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use super::proxy::Proxy;
use crate::auth::identity::Identity;
use crate::telemetry::log::{AccessLine, are_requests_logged};

/// The status in the line of a message whose client went away before the answer began, as nginx logs it. No client gets this
/// status.
const CLIENT_WENT_AWAY: u16 = 499;

/// A message that is not answered yet. Dropped without an answer, it was left by its client.
pub(super) struct Accessed<'m> {
    method: Cow<'m, str>,
    name: Cow<'m, str>,
    client: Option<Arc<Identity>>,
    began: Instant,
    status: u16,
}

impl<'m> Accessed<'m> {
    /// `None`: there is no access log.
    pub(super) fn begin(proxy: &Proxy, by: &Requester, message: &Inbound<'m>) -> Option<Self> {
        if !proxy.live.has_access_log() || !are_requests_logged() {
            return None;
        }
        let method = message.method().cloned();
        let name = message.params().and_then(|it| it.get_str("name"));
        Some(Self {
            method: method.unwrap_or_default(),
            name: name.unwrap_or_default(),
            client: by.identity.clone(),
            began: Instant::now(),
            status: CLIENT_WENT_AWAY,
        })
    }

    /// The answer begins: the line is written now.
    pub(super) fn end<B>(mut self, response: &Response<B>) {
        self.status = response.status().as_u16();
    }
}

impl Drop for Accessed<'_> {
    fn drop(&mut self) {
        let client = self.client.as_ref();
        let client = client.and_then(|client| client.label.as_deref());
        let line = AccessLine {
            method: &self.method,
            name: &self.name,
            status: self.status,
            took: Instant::now().saturating_duration_since(self.began),
            client: client.unwrap_or_default(),
        };
        line.write();
    }
}
