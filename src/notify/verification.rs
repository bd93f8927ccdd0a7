//! Asks the receiver of a subscription if it wants messages from the client that subscribed it. Without it any client
//! could have messages sent to any address.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use tokio::time::timeout;

use super::receiver::{Message, Receiver};
use crate::mcp::json::{Object, Writer, string};
use crate::task::notices::ATTEMPT_MS;

/// The most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// The reason for which the receiver did not show that it wants messages, in the words of the specification. They do
/// not show a client what answered at an address of its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChallengeFailure(pub &'static str);

/// Sends the challenge, and compares the answer with it.
pub async fn verify(receiver: &Receiver, now_ms: u64) -> Result<(), ChallengeFailure> {
    let asking = timeout(Duration::from_millis(ATTEMPT_MS), ask(receiver, now_ms));
    asking.await.unwrap_or(Err(ChallengeFailure("timeout")))
}

async fn ask(receiver: &Receiver, now_ms: u64) -> Result<(), ChallengeFailure> {
    let failed = ChallengeFailure("challenge_failed");
    let challenge = uuid::Uuid::new_v4().simple().to_string();
    let mut body = Writer::object();
    body.str("type", "verification")
        .str("challenge", &challenge);
    let message = Message {
        id: &format!("msg_verification_{}", uuid::Uuid::new_v4().simple()),
        at_s: now_ms / 1000,
        body: body.end(),
    };
    let request = receiver.request(message).map_err(|_| failed)?;
    let asked = receiver.address.ask(request, ANSWER_BYTES_MAX).await;
    let answer = asked.map_err(|why| ChallengeFailure(kind_of(&*why)))?;
    if !answer.status.is_success() {
        return Err(match answer.status.as_u16() {
            400..=499 => ChallengeFailure("http_4xx"),
            500..=599 => ChallengeFailure("http_5xx"),
            // A redirect may lead anywhere, so it is not followed.
            _ => failed,
        });
    }
    let text = std::str::from_utf8(&answer.body).map_err(|_| failed)?;
    let said = Object::parse(text).ok();
    let said = said.and_then(|said| string(said.get("challenge")?).map(Cow::into_owned));
    let said = said.ok_or(failed)?;
    verify_slices_are_equal(said.as_bytes(), challenge.as_bytes()).map_err(|_| failed)
}

/// A name that leads to an address that is not allowed looks like one where nothing listens.
fn kind_of(why: &(dyn Error + Send + Sync + 'static)) -> &'static str {
    let Some(error) = why.downcast_ref::<io::Error>() else {
        return if why.is::<hyper::Error>() {
            "challenge_failed"
        } else {
            "connection_refused"
        };
    };
    let inner = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
    if inner.is_some_and(<dyn Error>::is::<rustls::Error>) {
        "tls_error"
    } else if error.kind() == io::ErrorKind::TimedOut {
        "timeout"
    } else {
        "connection_refused"
    }
}
