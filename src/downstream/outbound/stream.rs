//! The response to a request whose answer may take long: one JSON body if the answer comes soon, else a stream of
//! events, with comments on it while there is no event.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::Response;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::downstream::body::{Body, PROBE};
use crate::downstream::outbound::keepalive::{self, Keepalive};
use crate::downstream::outbound::response::{self, Rpc};
use crate::mcp::sse;
use crate::runner::responder::DeliveryGuard;

/// An event that a client receives about its request.
#[derive(Debug)]
pub(in crate::downstream) enum ResponseEvent {
    /// A notification, or a request of the server's.
    Message(String),
    /// An event of the server's that is no message, as it goes to the client.
    Other(Bytes),
    /// The answer. Nothing follows.
    Answer(Rpc),
}

/// Where the events of one response come from. Dropped before the answer, the client is gone.
pub(in crate::downstream) trait ResponseSource: Send + 'static {
    /// The next event. `None`: there is no answer, and nothing more is asked. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<ResponseEvent>> + Send;

    /// The head of the response goes out: every further event is one on a stream.
    fn begin_stream(&mut self) {}

    /// Returns the guard that is notified that the answer was handed to the connection.
    fn into_guard(self) -> Option<DeliveryGuard>
    where
        Self: Sized,
    {
        None
    }
}

impl ResponseSource for mpsc::Receiver<ResponseEvent> {
    async fn next(&mut self) -> Option<ResponseEvent> {
        self.recv().await
    }
}

impl ResponseSource for BoxStream<'static, ResponseEvent> {
    async fn next(&mut self) -> Option<ResponseEvent> {
        stream::StreamExt::next(self).await
    }
}

/// Nothing but an answer.
impl ResponseSource for BoxFuture<'static, Rpc> {
    async fn next(&mut self) -> Option<ResponseEvent> {
        Some(ResponseEvent::Answer(self.await))
    }
}

/// The event that came before the head of a response had to go out.
pub(in crate::downstream) enum Head {
    /// The answer, which is the whole response.
    Answer(Rpc),
    /// The response is a stream, and this is the first event on it.
    Event(ResponseEvent),
    /// The response is a stream.
    Nothing,
    /// The response is a stream that ends at once: there is no answer.
    End,
}

/// Waits for the first event, but not longer than `patience` and not past the first beat of the heartbeat.
pub(in crate::downstream) async fn head(
    source: &mut impl ResponseSource,
    patience: Duration,
    heartbeat: Option<&Keepalive>,
) -> Head {
    tokio::select! {
        event = source.next() => match event {
            Some(ResponseEvent::Answer(answer)) => Head::Answer(answer),
            Some(event) => Head::Event(event),
            None => Head::End,
        },
        () = sleep(patience) => Head::Nothing,
        () = keepalive::due(heartbeat) => Head::Nothing,
    }
}

/// Responds with one JSON body where the answer comes within `patience`, else with a stream. Without a patience the
/// client reads no streams: it receives the answer only.
///
/// Boxed, because the compiler does not see that the future of a generic source is `Send`.
pub(in crate::downstream) fn respond(
    mut source: impl ResponseSource,
    patience: Option<Duration>,
    heartbeat: Option<Keepalive>,
) -> BoxFuture<'static, Response<Body>> {
    Box::pin(async move {
        let head = match patience {
            Some(patience) => head(&mut source, patience, heartbeat.as_ref()).await,
            None => answer_only(&mut source).await,
        };
        let first = match head {
            Head::Answer(answer) => return answer.guarded(source.into_guard()),
            Head::Event(event) => Some(event),
            Head::Nothing => None,
            Head::End => return response::event_stream(Body::Events(stream::empty().boxed())),
        };
        source.begin_stream();
        stream_of(source, first, heartbeat)
    })
}

async fn answer_only(source: &mut impl ResponseSource) -> Head {
    loop {
        match source.next().await {
            // A plain JSON response holds the answer only, so all other messages are dropped.
            Some(ResponseEvent::Message(_) | ResponseEvent::Other(_)) => {}
            Some(ResponseEvent::Answer(answer)) => return Head::Answer(answer),
            None => return Head::End,
        }
    }
}

/// Returns a stream of the source's events.
pub(in crate::downstream) fn stream_of(
    source: impl ResponseSource,
    first: Option<ResponseEvent>,
    heartbeat: Option<Keepalive>,
) -> Response<Body> {
    let open = OpenBody {
        source,
        first,
        heartbeat,
    };
    let events = stream::unfold(Stage::Open(open), Stage::next);
    response::event_stream(Body::events(events.boxed()))
}

/// A response that is a stream.
enum Stage<S> {
    Open(OpenBody<S>),
    /// The answer was taken. A piece behind it shows when it was sent, see [`Body::hold_until_sent`].
    Answered(Option<DeliveryGuard>),
    Sent(DeliveryGuard),
}

struct OpenBody<S> {
    source: S,
    first: Option<ResponseEvent>,
    heartbeat: Option<Keepalive>,
}

impl<S: ResponseSource> Stage<S> {
    async fn next(self) -> Option<(Bytes, Self)> {
        let mut open = match self {
            Self::Open(open) => open,
            Self::Answered(guard) => return Some((PROBE, Self::Sent(guard?))),
            Self::Sent(guard) => {
                guard.announce();
                return None;
            }
        };
        let event = if let Some(first) = open.first.take() {
            first
        } else {
            tokio::select! {
                event = open.source.next() => event?,
                beat = keepalive::next(&mut open.heartbeat) => return Some((beat, Self::Open(open))),
            }
        };
        Some(match event {
            ResponseEvent::Message(message) => {
                if let Some(heartbeat) = &mut open.heartbeat {
                    heartbeat.saw(&message);
                }
                (sse::event(&message), Self::Open(open))
            }
            ResponseEvent::Other(event) => (event, Self::Open(open)),
            ResponseEvent::Answer(answer) => {
                // Dropped with its guard, the source would count the client as gone before the answer is sent.
                let guard = open.source.into_guard();
                (sse::event(&answer.json), Self::Answered(guard))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use hyper::header::CONTENT_TYPE;
    use serde_json::value::RawValue;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn message(text: &str) -> ResponseEvent {
        ResponseEvent::Message(text.to_owned())
    }

    fn answer() -> ResponseEvent {
        ResponseEvent::Answer(Rpc::result("1", "{}"))
    }

    /// Returns the bytes that come after each of these pauses, in seconds.
    fn source(events: Vec<(u64, ResponseEvent)>) -> BoxStream<'static, ResponseEvent> {
        let events = stream::iter(events).then(|(seconds, event)| async move {
            sleep(Duration::from_secs(seconds)).await;
            event
        });
        events.boxed()
    }

    async fn text(response: Response<Body>) -> (String, String) {
        let kind = response.headers()[CONTENT_TYPE]
            .to_str()
            .unwrap()
            .to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_one_body_where_it_comes_soon_and_first() {
        let json = ("application/json".to_owned(), ANSWER.to_owned());
        let stream = |text: String| ("text/event-stream".to_owned(), text);
        let events = |parts: &[Bytes]| String::from_utf8(parts.concat()).unwrap();
        let told = events(&[sse::event("{}"), sse::event(ANSWER)]);
        let late = events(&[sse::COMMENT, sse::event(ANSWER)]);
        for (events, patience, expected) in [
            (vec![(1, answer())], Some(PATIENCE), json.clone()),
            (
                vec![(1, message("{}")), (1, answer())],
                Some(PATIENCE),
                stream(told),
            ),
            (vec![(20, answer())], Some(PATIENCE), stream(late)),
            (vec![(20, message("{}")), (20, answer())], None, json),
            (vec![], Some(PATIENCE), stream(String::new())),
        ] {
            let response = respond(source(events), patience, None).await;
            assert_eq!(text(response).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_call_is_said_to_run() {
        let token = RawValue::from_string("7".to_owned()).unwrap();
        let heartbeat = Keepalive::since(tokio::time::Instant::now(), token);
        let patience = Some(Duration::from_mins(1));
        let answering = async { Rpc::result("1", "{}") };
        let answering = sleep(Duration::from_secs(10)).then(|()| answering);
        let response = respond(answering.boxed(), patience, Some(heartbeat)).await;
        let (_, text) = text(response).await;
        assert!(text.contains(r#""progressToken":7"#), "{text}");
        assert!(text.ends_with(&format!("data: {ANSWER}\n\n")), "{text}");
    }
}
