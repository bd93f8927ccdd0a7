//! Progress of raincheck's own on a stream that passes as the server sends it.
//!
//! An event that passes is copied, and not read: many events are read together, or when progress is due. Of those the
//! newest progress counts, so most are never parsed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::value::RawValue;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::debug;

use super::keepalive::Keepalive;
use crate::mcp::answer::is_answer;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Object;
use crate::mcp::sse::{self, Decoder};

/// How much is copied before it is read.
const UNREAD_MAX: usize = 4 * 1024;

/// A larger event is an answer, behind which there is no progress; or a message so large that what follows is not read
/// either.
const EVENT_BYTES_MAX: usize = 64 * 1024;

/// How long progress that is due waits for the end of an event that has begun.
const PAUSE: Duration = Duration::from_millis(500);

/// Writes progress between the events of one stream while none of the server's passes.
pub(in crate::downstream) struct PassedHeartbeat {
    keepalive: Keepalive,
    /// The id of the call.
    id: Box<RawValue>,
    /// Fires when progress may be due. It is not set anew by each event: when it fires, it is set to when progress is due.
    timer: Pin<Box<Sleep>>,
    /// What passed since it was last read.
    unread: Vec<u8>,
    /// When what passed came, and where it ends in `unread`.
    arrivals: Vec<(Instant, usize)>,
    /// `None`: the answer has passed, or the stream cannot be read.
    decoder: Option<Decoder>,
    /// Nothing follows: the stream broke, and the client was told.
    is_over: bool,
}

/// What a frame of the server's body becomes.
type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

impl PassedHeartbeat {
    pub(in crate::downstream) fn new(id: &RawValue, keepalive: Keepalive) -> Self {
        Self {
            id: id.to_owned(),
            timer: Box::pin(sleep_until(keepalive.due_at())),
            keepalive,
            unread: Vec::new(),
            arrivals: Vec::new(),
            decoder: Some(Decoder::new(EVENT_BYTES_MAX)),
            is_over: false,
        }
    }

    /// Whether nothing follows, whatever the server's body says.
    pub(in crate::downstream) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next frame of a body that was polled: the server's, progress if the server is silent, or an error if the body
    /// ended before the answer.
    pub(in crate::downstream) fn poll_beside<E>(
        &mut self,
        polled: Polled<E>,
        context: &mut Context<'_>,
    ) -> Polled<E> {
        match polled {
            Poll::Pending => self
                .poll_due(context)
                .map(|event| Some(Ok(Frame::data(event)))),
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.passed(data);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            ended @ Poll::Ready(Some(Err(_)) | None) => match self.error_of_broken_stream() {
                Some(event) => Poll::Ready(Some(Ok(Frame::data(event)))),
                None => ended,
            },
        }
    }

    /// The answer where the server's stream ended without one. A stream that ended within an event stays as it is,
    /// because another event would make the client read the broken one.
    fn error_of_broken_stream(&mut self) -> Option<Bytes> {
        self.read();
        let decoder = self.decoder.take()?;
        if !decoder.is_between_events() {
            return None;
        }
        self.is_over = true;
        let error = Failure::new(Reason::UpstreamReset, SideEffect::Unknown).to_error();
        debug!(reason = %error.message, "a stream that passes was answered with an error");
        let answer = envelope::error(self.id.get(), &error.to_json());
        Some(sse::event(&answer))
    }

    /// Notes what passes.
    fn passed(&mut self, bytes: &[u8]) {
        // A frame without bytes says nothing, and any number of them would fit below the bound of what is unread.
        if self.decoder.is_none() || bytes.is_empty() {
            return;
        }
        self.unread.extend_from_slice(bytes);
        self.arrivals.push((Instant::now(), self.unread.len()));
        if self.unread.len() >= UNREAD_MAX {
            self.read();
        }
    }

    /// Reads what has passed, the newest message first: what came before the newest progress says nothing more.
    fn read(&mut self) {
        let Some(mut decoder) = self.decoder.take() else {
            return;
        };
        let (mut messages, mut begin) = (Vec::new(), 0);
        let mut is_readable = true;
        for (at, end) in self.arrivals.drain(..) {
            let part = self.unread.get(begin..end).unwrap_or_default();
            begin = end;
            let fed = decoder.feed(part, |event| messages.push((at, event.data)));
            is_readable = fed.is_ok();
            if !is_readable {
                break;
            }
        }
        // A large piece leaves no room behind that is not used again.
        self.unread.clear();
        self.unread.shrink_to(UNREAD_MAX * 2);
        for (at, message) in messages.iter().rev() {
            let Ok(message) = Object::parse(message) else {
                continue;
            };
            if is_answer(&message, &self.id) {
                return;
            }
            if self.keepalive.saw_at(&message, *at) {
                break;
            }
        }
        self.decoder = Some(decoder).filter(|_| is_readable);
    }

    /// The event that is due.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            self.read();
            let Some(decoder) = &self.decoder else {
                return Poll::Pending;
            };
            let now = Instant::now();
            let due = self.keepalive.due_at();
            if due > now {
                self.timer.as_mut().reset(due);
            } else if decoder.is_between_events() {
                let event = sse::event(&self.keepalive.beat());
                self.timer.as_mut().reset(self.keepalive.due_at());
                return Poll::Ready(event);
            } else {
                self.timer.as_mut().reset(now + PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use super::*;

    /// As long as a server may be silent.
    const SILENCE: Duration = Duration::from_secs(8);

    fn heartbeat() -> PassedHeartbeat {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        PassedHeartbeat::new(&raw("1"), Keepalive::since(Instant::now(), raw("7")))
    }

    fn progress(token: u32, progress: f64) -> Bytes {
        let params = format!(r#"{{"progress":{progress},"progressToken":{token}}}"#);
        sse::event(&format!(
            r#"{{"method":"notifications/progress","params":{params}}}"#
        ))
    }

    /// The server says this now, and it passes.
    async fn says(heartbeat: &mut PassedHeartbeat, bytes: &[u8]) {
        let frame = Frame::data(Bytes::copy_from_slice(bytes));
        let mut polled = Some(Poll::Ready(Some(Ok::<_, Infallible>(frame))));
        let passed = poll_fn(|context| {
            heartbeat.poll_beside(polled.take().unwrap_or(Poll::Pending), context)
        });
        let passed = passed.await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(passed, bytes);
    }

    /// How long the server is silent until raincheck says something, and the progress that it says.
    async fn silence(heartbeat: &mut PassedHeartbeat) -> (Duration, f64) {
        let from = Instant::now();
        let event = poll_fn(|context| heartbeat.poll_beside::<Infallible>(Poll::Pending, context));
        let event = event.await.unwrap().unwrap().into_data().unwrap();
        let mut said = Vec::new();
        Decoder::new(1_000)
            .feed(&event, |event| said.push(event.data))
            .unwrap();
        let message: serde_json::Value = serde_json::from_str(&said[0]).unwrap();
        assert_eq!(message["params"]["progressToken"], 7);
        let progress = message["params"]["progress"].as_f64().unwrap();
        (Instant::now() - from, progress)
    }

    async fn is_silent_for_good(heartbeat: &mut PassedHeartbeat) -> bool {
        let long = Duration::from_mins(10);
        let waiting = tokio::time::timeout(long, silence(heartbeat));
        waiting.await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_due_when_none_has_passed_for_so_long() {
        let mut heartbeat = heartbeat();
        let (waited, first) = silence(&mut heartbeat).await;
        assert_eq!(waited, SILENCE);
        assert!(first > 0.0 && first < 1.0, "{first}");
        let (waited, second) = silence(&mut heartbeat).await;
        assert_eq!(waited, SILENCE);
        assert!(second > first);
        tokio::time::advance(Duration::from_secs(5)).await;
        says(&mut heartbeat, &progress(7, 3.0)).await;
        let (waited, third) = silence(&mut heartbeat).await;
        assert_eq!(waited, SILENCE);
        assert!(third > 3.0 && third < 4.0, "{third}");
    }

    #[tokio::test(start_paused = true)]
    async fn only_progress_of_the_call_counts_however_much_passes() {
        let mut heartbeat = heartbeat();
        for number in 0..200 {
            says(&mut heartbeat, &progress(7, f64::from(number))).await;
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        for _ in 0..200 {
            says(&mut heartbeat, &progress(8, 900.0)).await;
            says(&mut heartbeat, b": progressToken\n\ndata: no json\n\n").await;
            says(&mut heartbeat, &sse::event(r#"{"id":2,"result":{}}"#)).await;
        }
        let (waited, said) = silence(&mut heartbeat).await;
        assert_eq!(waited, Duration::from_secs(3));
        assert!(said > 199.0 && said < 200.0, "{said}");
    }

    /// What the client is told when the server's body ends.
    async fn ends(heartbeat: &mut PassedHeartbeat) -> Option<String> {
        let mut ended = Some(Poll::Ready(None));
        let polled = poll_fn(|context| {
            heartbeat.poll_beside::<Infallible>(ended.take().unwrap_or(Poll::Pending), context)
        });
        let event = polled.await?.unwrap().into_data().unwrap();
        Some(String::from_utf8(event.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_ends_before_its_answer_ends_with_an_error() {
        let mut broken = heartbeat();
        says(&mut broken, &progress(7, 1.0)).await;
        let told = ends(&mut broken).await.unwrap();
        assert!(
            told.contains(r#""id":1"#) && told.contains("upstream_reset"),
            "{told}"
        );
        assert!(broken.is_over());
        assert_eq!(ends(&mut broken).await, None, "told once");

        let mut within_an_event = heartbeat();
        says(&mut within_an_event, b"data: {").await;
        assert_eq!(ends(&mut within_an_event).await, None);

        let mut answered = heartbeat();
        says(&mut answered, &sse::event(r#"{"id":1,"result":{}}"#)).await;
        assert_eq!(ends(&mut answered).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_not_cut_in_two() {
        let mut heartbeat = heartbeat();
        let event = progress(7, 5.0);
        let (first, rest) = event.split_at(event.len() - 1);
        says(&mut heartbeat, first).await;
        let waiting = tokio::time::timeout(SILENCE * 3, silence(&mut heartbeat));
        assert!(waiting.await.is_err());
        says(&mut heartbeat, rest).await;
        let (waited, said) = silence(&mut heartbeat).await;
        assert_eq!(waited, SILENCE);
        assert!(said > 5.0 && said < 6.0, "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_follows_an_answer_or_what_cannot_be_read() {
        let large = format!("data: {}", "x".repeat(EVENT_BYTES_MAX));
        for last in [
            r#"data: {"id":1,"result":{}}"#,
            r#"data: {"id":1,"error":{}}"#,
            &large,
        ] {
            let mut heartbeat = heartbeat();
            says(&mut heartbeat, &progress(7, 1.0)).await;
            says(&mut heartbeat, last.as_bytes()).await;
            says(&mut heartbeat, b"\n\n").await;
            assert!(is_silent_for_good(&mut heartbeat).await, "{last:.40}");
        }
    }
}
