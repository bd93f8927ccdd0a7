//! A receiver of webhooks: where it is, and how one message gets there.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use tokio::time::timeout;

use super::signature::{WebhookSecret, signatures};
use crate::base::io_reason::io_reason;
use crate::base::retry_after;
use crate::net::http_address::{DeniedAddress, HttpAddress};
use crate::task::events::SUBSCRIPTION_ID;
use crate::task::notices::ATTEMPT_MS;

/// A receiver: where it is, and by what it knows raincheck.
#[derive(Debug)]
pub struct Receiver {
    /// Its host, for the log: a path may be secret.
    pub host: Box<str>,
    pub address: HttpAddress,
    /// The secrets that sign, the newest first.
    pub secrets: Vec<WebhookSecret>,
    /// The subscription of a client that it belongs to. `None`: the operator configured it.
    pub subscription: Option<Box<str>>,
}

/// One message.
pub(super) struct Message<'m> {
    pub(super) id: &'m str,
    /// When this attempt is made, in Unix seconds.
    pub(super) at_s: u64,
    pub(super) body: String,
}

/// The result of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Delivered,
    /// The receiver wants no message any more.
    Gone,
    /// The receiver may take it later, after this pause if its response contains one.
    Failed {
        why: String,
        pause: Option<Duration>,
    },
    /// Its name leads to no address that is allowed.
    Refused {
        why: String,
    },
    /// The receiver will never take this message.
    Rejected,
    /// The subscription has ended.
    Unheard,
    /// There is nothing to send any more.
    Outdated,
    /// Other messages of the same caller are under way.
    Busy,
}

impl Receiver {
    pub(super) async fn send(&self, message: Message<'_>) -> Attempt {
        let sending = timeout(Duration::from_millis(ATTEMPT_MS), self.tell(message));
        sending.await.unwrap_or_else(|_elapsed| Attempt::Failed {
            why: "no answer within 10 s".to_owned(),
            pause: None,
        })
    }

    /// The signed message.
    pub(super) fn request(
        &self,
        message: Message<'_>,
    ) -> hyper::http::Result<Request<Full<Bytes>>> {
        let Message { id, at_s, body } = message;
        let mut request = Request::post(self.address.path())
            .header(CONTENT_TYPE, JSON)
            .header(USER_AGENT, AGENT)
            .header("webhook-id", id)
            .header("webhook-timestamp", at_s)
            .header(
                "webhook-signature",
                signatures(&self.secrets, id, at_s, &body),
            );
        if let Some(id) = &self.subscription {
            request = request.header(SUBSCRIPTION_ID, &**id);
        }
        request.body(Full::new(Bytes::from(body)))
    }

    async fn tell(&self, message: Message<'_>) -> Attempt {
        let request = match self.request(message) {
            Ok(request) => request,
            Err(error) => return failed(&error),
        };
        let answer = match self.address.tell(request).await {
            Ok(answer) => answer,
            // Counted apart from failures, because nothing was sent and the receiver is not the cause.
            Err(error) if error.is::<DeniedAddress>() => {
                let why = error.to_string();
                return Attempt::Refused { why };
            }
            Err(error) => return failed(&*error),
        };
        match answer.status {
            status if status.is_success() => Attempt::Delivered,
            StatusCode::GONE => Attempt::Gone,
            // The specification of events says so. `[[notify]]` has always tried such a message again.
            StatusCode::PAYLOAD_TOO_LARGE if self.subscription.is_some() => Attempt::Rejected,
            // A redirect may lead anywhere, so it is not followed.
            status => Attempt::Failed {
                why: format!("HTTP {status}"),
                pause: retry_after::asked(&answer.headers),
            },
        }
    }
}

fn failed(error: &(dyn Error + 'static)) -> Attempt {
    Attempt::Failed {
        why: io_reason(error),
        pause: None,
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

const AGENT: &str = concat!("raincheck/", env!("CARGO_PKG_VERSION"));
