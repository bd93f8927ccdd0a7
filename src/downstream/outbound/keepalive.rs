//! The messages that keep a quiet stream alive: comments for the network, and progress of raincheck's own for a
//! client that gives up without any.

use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use crate::mcp::envelope;
use crate::mcp::json::{Object, Writer, string};
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::sse;

/// The pause between comments on a quiet stream.
pub(in crate::downstream) const COMMENT_PAUSE: Duration = Duration::from_secs(15);

/// Ticks when a comment is due.
pub(in crate::downstream) fn comments() -> Interval {
    let mut due = interval_at(Instant::now() + COMMENT_PAUSE, COMMENT_PAUSE);
    // A late comment is not followed by those that were missed.
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    due
}

/// The time that the server may be silent. Some clients give up after 10 s without progress.
const SILENCE: Duration = Duration::from_secs(8);

/// The growth of progress in a second: it must grow (2025-11-25, Progress), but no progress bar shall show it.
const STEP: f64 = 1e-6;

/// Sends progress of one call while its server is silent.
#[derive(Debug)]
pub(in crate::downstream) struct Keepalive {
    token: Box<RawValue>,
    began: Instant,
    last: f64,
    due: Instant,
}

impl Keepalive {
    /// For a client that waits since `began`, with the client's own token.
    pub(in crate::downstream) fn since(began: Instant, token: Box<RawValue>) -> Self {
        Self {
            token,
            began,
            last: 0.0,
            due: began + SILENCE,
        }
    }

    /// Returns the keepalive for a client that comes back to a call of that age: it receives first the events that it
    /// missed.
    pub(in crate::downstream) fn resumed(age: Duration, token: Box<RawValue>) -> Self {
        let now = Instant::now();
        // An `Instant` may not reach back beyond the start of the machine.
        let began = now.checked_sub(age).unwrap_or(now);
        Self {
            due: now + SILENCE,
            ..Self::since(began, token)
        }
    }

    /// Notes a message that goes to the client.
    pub(in crate::downstream) fn saw(&mut self, message: &str) {
        if let Ok(message) = Object::parse(message) {
            self.saw_at(&message, Instant::now());
        }
    }

    /// Notes a message that went to the client then. Gives whether it was progress of the call.
    pub(super) fn saw_at(&mut self, message: &Object<'_>, at: Instant) -> bool {
        let Some(progress) = progress_of(message, &self.token) else {
            return false;
        };
        // Progress must never fall for the client, also where the server's own does (2025-11-25, Progress).
        self.last = self.last.max(progress);
        self.due = at + SILENCE;
        true
    }

    /// When the server was silent for too long, as far as is known now.
    pub(in crate::downstream) fn due_at(&self) -> Instant {
        self.due
    }

    /// Resolves when the server was silent for too long. Cancel safe.
    pub(in crate::downstream) async fn due(&self) {
        sleep_until(self.due).await;
    }

    /// The notification that is due.
    pub(in crate::downstream) fn beat(&mut self) -> String {
        let now = Instant::now();
        self.due = now + SILENCE;
        let age = now.saturating_duration_since(self.began);
        notification(&self.token, self.last + STEP * age.as_secs_f64())
    }
}

/// Waits for the notification of a call that may send none. Cancel safe.
pub(in crate::downstream) async fn due(heartbeat: Option<&Keepalive>) {
    match heartbeat {
        Some(heartbeat) => heartbeat.due().await,
        None => std::future::pending().await,
    }
}

/// Returns the event with that notification when it is due. Cancel safe.
pub(in crate::downstream) async fn next(heartbeat: &mut Option<Keepalive>) -> Bytes {
    match heartbeat {
        Some(heartbeat) => {
            heartbeat.due().await;
            sse::event(&heartbeat.beat())
        }
        None => std::future::pending().await,
    }
}

fn progress_of(message: &Object<'_>, token: &RawValue) -> Option<f64> {
    if message.get_str("method")? != "notifications/progress" {
        return None;
    }
    let params = message.get_object("params")?;
    let own = params.get(PROGRESS_TOKEN)?;
    // The server may escape a string in another way.
    let is_own =
        own.get() == token.get() || (string(own).is_some() && string(own) == string(token));
    let progress = is_own.then(|| params.get("progress"))??;
    let progress: f64 = progress.get().parse().ok()?;
    // Nothing is greater than an infinite progress.
    progress.is_finite().then_some(progress)
}

fn notification(token: &RawValue, progress: f64) -> String {
    let mut params = Writer::object();
    params.raw(PROGRESS_TOKEN, token.get());
    params.number("progress", progress);
    params.str("message", "still running");
    envelope::notification("notifications/progress", &params.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn progress_in(message: &str, own: &str) -> f64 {
        progress_of(&Object::parse(message).unwrap(), &token(own)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn progress_grows_while_the_server_is_silent() {
        let mut heartbeat = Keepalive::since(Instant::now(), token("\"t\""));
        let from = Instant::now();
        let mut last = 0.0;
        for said in ["3", "3.5"] {
            heartbeat.saw(&format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":"\u0074","progress":{said}}}}}"#
            ));
            for _ in 0..2 {
                let before = Instant::now();
                heartbeat.due().await;
                assert_eq!(Instant::now() - before, SILENCE);
                let progress = progress_in(&heartbeat.beat(), "\"t\"");
                assert!(progress > last && progress < 4.0, "{progress}");
                last = progress;
            }
        }
        assert_eq!(Instant::now() - from, SILENCE * 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_due_when_the_client_has_waited_for_so_long() {
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        let waits = Keepalive::since(began, token("1"));
        let came_back = Keepalive::resumed(Duration::from_mins(1), token("1"));
        waits.due().await;
        assert_eq!(Instant::now() - began, SILENCE);
        came_back.due().await;
        assert_eq!(Instant::now() - began, Duration::from_secs(3) + SILENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn only_progress_under_its_token_counts() {
        let mut heartbeat = Keepalive::resumed(Duration::from_mins(1), token("1"));
        for other in [
            r#"{"method":"notifications/progress","params":{"progressToken":"1","progress":9}}"#,
            r#"{"method":"notifications/message","params":{"progressToken":1,"progress":9}}"#,
            "[]",
        ] {
            heartbeat.saw(other);
        }
        let progress = progress_in(&heartbeat.beat(), "1");
        assert!(progress > 0.0 && progress < 1.0, "{progress}");
    }
}
