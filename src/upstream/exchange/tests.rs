//! The driver over a scripted transport.

use std::collections::VecDeque;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;

use super::*;
use crate::mcp::error::{Reason, SideEffect};
use crate::mcp::json::raw;
use crate::upstream::failures::LATER;

/// The scripted server's treatment of the next request.
enum ScriptedAnswer {
    Busy,
    Taken(Vec<Next>),
    Refused,
}

enum Next {
    Result,
    Progress,
    Unsent,
    Silence,
}

struct Scripted(VecDeque<ScriptedAnswer>);

const NOT_SENT: Failure = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);

impl RequestTransport for Scripted {
    type Open = VecDeque<Next>;

    async fn send(&mut self) -> Result<Self::Open, Untaken> {
        match self.0.pop_front().expect("sent too often") {
            ScriptedAnswer::Busy => Err(Untaken::Later(Postponed {
                pause: Duration::from_millis(1),
                is_long: false,
                failure: LATER,
            })),
            ScriptedAnswer::Taken(script) => Ok(script.into()),
            ScriptedAnswer::Refused => Err(Untaken::End(Event::Failed(NOT_SENT))),
        }
    }

    async fn next(&mut self, open: &mut Self::Open) -> Result<Event, Unsent> {
        let null = || raw("null".to_owned()).unwrap();
        match open.pop_front().expect("read after the end") {
            Next::Result => Ok(Event::Result(null())),
            Next::Progress => Ok(Event::Progress(null())),
            Next::Unsent => Err(Unsent(NOT_SENT)),
            Next::Silence => {
                tokio::task::yield_now().await;
                Ok(Event::Progress(null()))
            }
        }
    }

    fn end(&mut self, _open: Option<Self::Open>, last: &Event) {
        assert!(last.is_last());
    }
}

fn events(script: Vec<ScriptedAnswer>) -> futures_util::stream::BoxStream<'static, Event> {
    begin(Scripted(script.into()), Arc::new(NoopControl)).events
}

async fn told(script: Vec<ScriptedAnswer>) -> Vec<&'static str> {
    let words = events(script).map(|event| match event {
        Event::Later(Some(_)) => "later",
        Event::Later(None) => "taken",
        Event::Progress(_) => "progress",
        Event::Result(_) => "result",
        Event::Failed(failure) if failure == LATER => "busy for too long",
        Event::Failed(_) => "not sent",
        Event::Sent
        | Event::Log(_)
        | Event::Question(_)
        | Event::Job(_)
        | Event::Resumable(_)
        | Event::CredentialsRefused
        | Event::Error(_) => "what no script says",
    });
    words.collect().await
}

fn taken(script: Vec<Next>) -> ScriptedAnswer {
    ScriptedAnswer::Taken(script)
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_until_it_is_taken_and_read_until_its_answer() {
    use Next::{Progress, Result, Unsent};
    use ScriptedAnswer::{Busy, Refused};
    for (script, expected) in [
        (
            vec![taken(vec![Progress, Result])],
            vec!["progress", "result"],
        ),
        (vec![Refused], vec!["not sent"]),
        (
            vec![Busy, Busy, taken(vec![Result])],
            vec!["later", "later", "taken", "result"],
        ),
        (vec![Busy, Refused], vec!["later", "not sent"]),
        (
            vec![Busy, Busy, Busy],
            vec!["later", "later", "busy for too long"],
        ),
        (
            vec![taken(vec![Unsent]), taken(vec![Progress, Result])],
            vec!["taken", "progress", "result"],
        ),
        (
            vec![taken(vec![Unsent]), Busy, taken(vec![Unsent])],
            vec!["later", "taken", "not sent"],
        ),
    ] {
        assert_eq!(told(script).await, expected);
    }
}

#[tokio::test]
async fn a_pending_event_that_is_dropped_is_not_lost() {
    let mut events = events(vec![taken(vec![Next::Silence, Next::Result])]);
    assert!(events.next().now_or_never().is_none());
    assert!(matches!(events.next().await, Some(Event::Progress(_))));
    assert!(matches!(events.next().await, Some(Event::Result(_))));
    assert!(events.next().await.is_none());
}
