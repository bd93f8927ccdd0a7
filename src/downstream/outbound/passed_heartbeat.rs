//! Progress of raincheck's own on a stream that passes as the server sends it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::keepalive::Keepalive;
use super::passed_call::PassedCall;
use super::passed_events::{PassedEvents, Position};
use crate::mcp::error::Reason;
use crate::mcp::sse;

/// The time that an event of raincheck's own that is due waits for the end of an event that has begun.
const PAUSE: Duration = Duration::from_millis(500);

/// Writes progress between the events of one stream while none of the server's passes.
pub(in crate::downstream) struct PassedHeartbeat {
    call: PassedCall,
    keepalive: Keepalive,
    /// Fires when progress may be due. It is not set anew by each event: when it fires, it is set to when progress is due.
    timer: Pin<Box<Sleep>>,
    events: PassedEvents,
    /// Why raincheck must end the call, as soon as no event of the server's is cut in two.
    must_end: Option<Reason>,
    /// Nothing follows: raincheck answered the call.
    is_over: bool,
}

/// The result for a frame of the server's body.
type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

impl PassedHeartbeat {
    pub(in crate::downstream) fn new(call: PassedCall, keepalive: Keepalive) -> Self {
        Self {
            call,
            timer: Box::pin(sleep_until(keepalive.due_at())),
            keepalive,
            events: PassedEvents::new(),
            must_end: None,
            is_over: false,
        }
    }

    /// Returns `true` if raincheck answered the call: nothing follows, whatever the server's body contains.
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
            // Nothing can follow trailers.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => {
                let event = self.error_of_broken_stream();
                Poll::Ready(Some(Ok(event.map_or(frame, Frame::data))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref()
                    && self.events.passed(data)
                {
                    self.read();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            ended @ Poll::Ready(Some(Err(_)) | None) => match self.error_of_broken_stream() {
                Some(event) => Poll::Ready(Some(Ok(Frame::data(event)))),
                None => ended,
            },
        }
    }

    fn read(&mut self) {
        self.events.read(self.call.id(), &mut self.keepalive);
    }

    /// The answer where the server's stream ended without one. A stream that ended within an event stays as it is,
    /// because another event would make the client read the broken one.
    fn error_of_broken_stream(&mut self) -> Option<Bytes> {
        // The answer may be among the bytes that were copied and not read yet.
        self.read();
        let is_whole = self.events.position() == Position::BetweenEvents;
        // The server has answered, but not this request.
        let reason = if self.events.had_stray_answer() {
            Reason::UpstreamInvalid
        } else {
            Reason::UpstreamReset
        };
        is_whole.then(|| self.end(reason))
    }

    /// The last event: raincheck's own answer.
    fn end(&mut self, reason: Reason) -> Bytes {
        self.events.end();
        self.is_over = true;
        sse::event(&self.call.fail(reason))
    }

    /// The event that is due.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        if self.must_end.is_none()
            && let Poll::Ready(reason) = self.call.poll_must_end(context)
        {
            self.must_end = Some(reason);
            // The timer is due at once, so that the loop below looks for a place between two events.
            self.timer.as_mut().reset(Instant::now());
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            self.read();
            let (now, due) = (Instant::now(), self.keepalive.due_at());
            match (self.events.position(), self.must_end) {
                // From here on only the server's body wakes the connection.
                (Position::Over, _) => return Poll::Pending,
                (Position::BetweenEvents, Some(reason)) => return Poll::Ready(self.end(reason)),
                // The read above may have found progress of the server's, which moves the time.
                (_, None) if due > now => self.timer.as_mut().reset(due),
                (Position::WithinEvent, _) => self.timer.as_mut().reset(now + PAUSE),
                (Position::BetweenEvents, None) => {
                    let event = sse::event(&self.keepalive.beat());
                    self.timer.as_mut().reset(self.keepalive.due_at());
                    return Poll::Ready(event);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use serde_json::value::RawValue;
    use tokio_util::sync::CancellationToken;

    use super::super::passed_events::EVENT_BYTES_MAX;
    use super::*;
    use crate::mcp::sse::Decoder;

    /// As long as a server may be silent.
    const SILENCE: Duration = Duration::from_secs(8);

    /// As long as a call may take.
    const LONGEST: Duration = Duration::from_hours(1);

    fn heartbeat() -> PassedHeartbeat {
        drained_by(CancellationToken::new())
    }

    fn drained_by(drained: CancellationToken) -> PassedHeartbeat {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let call = PassedCall::begin(&raw("1"), "tool", LONGEST, drained);
        PassedHeartbeat::new(call, Keepalive::since(Instant::now(), raw("7")))
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

    /// Returns the time for which the server is silent until raincheck says something, and the progress that it says.
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

    /// Returns the message of raincheck while the server is silent.
    async fn said(heartbeat: &mut PassedHeartbeat) -> String {
        let event = poll_fn(|context| heartbeat.poll_beside::<Infallible>(Poll::Pending, context));
        let event = event.await.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(event.to_vec()).unwrap()
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

    /// Returns the message for the client when the server's body ends.
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

        let mut answered_another = heartbeat();
        says(
            &mut answered_another,
            &sse::event(r#"{"id":2,"result":{}}"#),
        )
        .await;
        let told = ends(&mut answered_another).await.unwrap();
        assert!(told.contains("upstream_invalid"), "{told}");

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

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_that_later_progress_follows() {
        let mut ended = heartbeat();
        says(&mut ended, &sse::event(r#"{"id":1,"result":{}}"#)).await;
        says(&mut ended, &progress(7, 2.0)).await;
        assert_eq!(ends(&mut ended).await, None);

        let mut silent = heartbeat();
        says(&mut silent, &sse::event(r#"{"id":1,"result":{}}"#)).await;
        says(&mut silent, &progress(7, 2.0)).await;
        assert!(is_silent_for_good(&mut silent).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_comes_before_the_trailers_of_a_stream() {
        let mut heartbeat = heartbeat();
        says(&mut heartbeat, &progress(7, 1.0)).await;
        let trailers = Frame::<Bytes>::trailers(hyper::HeaderMap::new());
        let mut polled = Some(Poll::Ready(Some(Ok::<_, Infallible>(trailers))));
        let told = poll_fn(|context| {
            heartbeat.poll_beside(polled.take().unwrap_or(Poll::Ready(None)), context)
        });
        assert!(told.await.unwrap().unwrap().is_data());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_time_limit_and_between_two_events() {
        let from = Instant::now();
        let mut heartbeat = heartbeat();
        tokio::time::advance(LONGEST.saturating_sub(SILENCE)).await;
        says(&mut heartbeat, b"data: {").await;
        let waiting = tokio::time::timeout(SILENCE * 2, silence(&mut heartbeat));
        assert!(waiting.await.is_err());
        says(&mut heartbeat, b"}\n\n").await;
        let event = said(&mut heartbeat).await;
        assert!(event.contains(r#""deadline""#), "{event}");
        assert!(Instant::now() - from < LONGEST + SILENCE * 2);
        assert!(heartbeat.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_the_drain_unless_it_was_answered() {
        let drained = CancellationToken::new();
        let (mut heartbeat, mut answered) =
            (drained_by(drained.clone()), drained_by(drained.clone()));
        says(&mut answered, &sse::event(r#"{"id":1,"result":{}}"#)).await;
        let waiting = tokio::time::timeout(SILENCE / 2, silence(&mut heartbeat));
        assert!(waiting.await.is_err());
        drained.cancel();
        let from = Instant::now();
        let event = said(&mut heartbeat).await;
        assert!(event.contains(r#""shutdown""#), "{event}");
        assert_eq!(Instant::now(), from);
        assert!(heartbeat.is_over());
        assert!(is_silent_for_good(&mut answered).await);
    }
}
