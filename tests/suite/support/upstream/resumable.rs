//! Streams that can be come back to (2025-11-25, Resumability): every event is kept and has an id,
//! and whoever was cut off asks for the rest by the last one seen.

use std::sync::{Arc, Mutex};

use hyper::Response;
use tokio::sync::{mpsc, watch};

use super::super::http::{self, Body, Said};

/// The streams of one session.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Vec<Arc<Log>>>);

/// One stream: what was said so far, and whether that was all.
#[derive(Debug, Default)]
struct Log {
    said: watch::Sender<(Vec<String>, bool)>,
    /// How often its readers were cut off.
    cuts: watch::Sender<u32>,
    /// Where it can be come back to is told with the second event, not before the first.
    tells_late: bool,
}

impl Streams {
    /// Keeps what is said, and answers with it as it comes.
    pub(super) fn open(&self, said: mpsc::Receiver<Said>) -> Response<Body> {
        self.open_as(said, Log::default())
    }

    /// The same for a stream that only its second event shows to be such.
    pub(super) fn open_late(&self, said: mpsc::Receiver<Said>) -> Response<Body> {
        let late = Log {
            tells_late: true,
            ..Log::default()
        };
        self.open_as(said, late)
    }

    /// Ends every response that is read, and no stream.
    pub(super) fn cut(&self) {
        for log in self.0.lock().unwrap().iter() {
            log.cuts.send_modify(|cuts| *cuts += 1);
        }
    }

    /// The same, and none can be come back to.
    pub(super) fn forget(&self) {
        self.cut();
        self.0.lock().unwrap().clear();
    }

    fn open_as(&self, mut said: mpsc::Receiver<Said>, log: Log) -> Response<Body> {
        let log = Arc::new(log);
        let mut streams = self.0.lock().unwrap();
        let number = streams.len();
        streams.push(Arc::clone(&log));
        drop(streams);
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Some(said) = said.recv().await {
                let is_last = matches!(said, Said::Answer(_));
                kept.said.send_modify(|(events, ended)| {
                    events.push(said.text());
                    *ended = is_last;
                });
            }
            kept.said.send_modify(|(_, ended)| *ended = true);
        });
        read(&log, number, None)
    }

    /// The rest of a stream behind this event.
    pub(super) fn resume(&self, last_event_id: &str) -> Option<Response<Body>> {
        let (stream, event) = last_event_id.split_once('-')?;
        let number: usize = stream.parse().ok()?;
        let log = self.0.lock().unwrap().get(number).cloned()?;
        Some(read(&log, number, Some(event.parse().ok()?)))
    }
}

/// Event 0 is the priming one.
fn read(log: &Log, number: usize, after: Option<usize>) -> Response<Body> {
    let (mut cuts, tells_late) = (log.cuts.subscribe(), log.tells_late);
    let mut log = log.said.subscribe();
    let (out, events) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut next = after.unwrap_or(0);
        if after.is_none() && !tells_late {
            let primed = format!("id: {number}-0\r\nretry: 50\r\ndata:\r\n\r\n");
            if out.send(primed).await.is_err() {
                return;
            }
        }
        loop {
            let (new, ended) = {
                let log = log.borrow_and_update();
                (log.0[next.min(log.0.len())..].to_vec(), log.1)
            };
            for text in new {
                next += 1;
                let id = if tells_late && next == 1 {
                    String::new()
                } else {
                    format!("id: {number}-{next}\r\n")
                };
                let event = format!("event: message\r\n{id}data: {text}\r\n\r\n");
                if out.send(event).await.is_err() {
                    return;
                }
            }
            if ended {
                return;
            }
            let changed = tokio::select! {
                changed = log.changed() => changed.is_ok(),
                () = out.closed() => false,
                _ = cuts.changed() => false,
            };
            if !changed {
                return;
            }
        }
    });
    http::event_stream(http::received(events))
}
