//! A held call whose replica died, carried on where its client came back to, if the server keeps its
//! events: behind the last one that is known, on the client's own session and with its credentials.

use std::sync::Arc;

use futures_util::FutureExt as _;
use hyper::http::request::Parts;
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{Place, cancel_of};
use super::carry::Job;
use super::live::Tail;
use super::log::{Head, Left, Log, Point, Written};
use super::pen::Pen;
use super::words::{Stage, Words};
use crate::downstream::proxy::Shared;
use crate::mcp::error::Reason;
use crate::mcp::headers::LAST_EVENT_ID;
use crate::store::StoreError;
use crate::task::id::{Incarnation, TaskId};
use crate::upstream::relay::ResumePoint;

/// Replicas that died one after the other, each before it had carried the call on.
const LOST_MAX: usize = 8;

/// What is ours now.
struct Taken {
    head: Head,
    /// Whose it was.
    owner: Box<str>,
    written: Written,
}

fn expires_ms(head: &Head) -> u64 {
    head.terms.ends_ms.saturating_add(head.terms.retention_ms)
}

/// Who would carry a call on: here, for a client that came back to it.
#[derive(Clone)]
pub(super) struct Successor {
    front: Shared,
    /// Of the request that came back.
    parts: Parts,
    place: Place,
}

impl Successor {
    pub(super) fn new(front: &Shared, parts: &Parts, place: Place) -> Self {
        let mut parts = parts.clone();
        parts.headers.remove(LAST_EVENT_ID);
        Self {
            front: Arc::clone(front),
            parts,
            place,
        }
    }

    /// In a job of its own: it goes on when the client leaves again. `seen`: the last entry that the
    /// client has.
    pub(super) fn begin(self, log: Log, seen: u64) {
        let front = Arc::clone(&self.front);
        front.runner.attend(async move {
            if let Err(error) = Box::pin(self.carry_on(log, seen)).await {
                tracing::warn!(%error, "the store did not let a held call be taken over");
            }
        });
    }

    async fn carry_on(self, log: Log, seen: u64) -> Result<(), StoreError> {
        let Some(head) = log.head().await?.filter(|head| !head.is_over) else {
            return Ok(());
        };
        let (tail, shown) = watch::channel(Tail::default());
        let key = self.place.key();
        // One at a time here, and one of all replicas.
        let holding = self.front.holds.begin(log.name(), key, &head.id, shown);
        let Some(holding) = holding else {
            return Ok(());
        };
        if !self.is_next(&log, &head).await? {
            return Ok(());
        }
        // The owner, should it live after all, looks there before it writes.
        let sure = Instant::now();
        let Some(Taken {
            mut head,
            owner,
            written,
        }) = self.take(&log).await?
        else {
            return Ok(());
        };
        // With what the owner wrote at last.
        let left = log.left(&head).await;
        let Ok(Left::Resumable { event_id, last }) = left else {
            // It is not carried on here, and nobody shall wait for that.
            head.is_over = matches!(left, Ok(Left::Answered));
            head.owner = owner;
            log.write_head(&head, Some(&written), expires_ms(&head))
                .await?;
            return left.map(drop);
        };
        tracing::info!("a held call is carried on after its replica was lost");
        tail.send_replace(Tail::behind_entry(last));
        // Whoever comes after us may have nothing newer: the server may say no more before we go.
        let sealed = log.seal().close(&event_id);
        let point = sealed.map(|sealed| Point {
            behind: last,
            sealed,
        });
        let source = self.words(&head, event_id).spoken();
        let stop = self.stop(&head).boxed();
        let head = Head { point, ..head };
        let pen = Pen::new(log, head, tail, last, sure)
            .over(written)
            .seen(seen);
        let job = Job::new(&self.front, pen, holding, key, stop);
        job.run(source).await;
        Ok(())
    }

    /// Names us in the head as it is now: the owner may have written at last, or ended the call. `None`:
    /// there is nothing to carry on.
    async fn take(&self, log: &Log) -> Result<Option<Taken>, StoreError> {
        let me = self.front.runner.incarnation().as_str();
        for _ in 0..LOST_MAX {
            let stands = log.standing().await?.filter(|(head, _)| !head.is_over);
            let Some((mut head, stands)) = stands else {
                return Ok(None);
            };
            let owner = std::mem::replace(&mut head.owner, me.into());
            let written = log.write_head(&head, Some(&stands), expires_ms(&head));
            if let Some(written) = written.await? {
                return Ok(Some(Taken {
                    head,
                    owner,
                    written,
                }));
            }
        }
        // It lives.
        Ok(None)
    }

    /// Whether nobody else carries the call on. Who wanted to and died first is passed over.
    async fn is_next(&self, log: &Log, head: &Head) -> Result<bool, StoreError> {
        let me = self.front.runner.incarnation();
        let claimant = format!("{}/{}", TaskId::random(), me.as_str());
        let expires_ms = expires_ms(head);
        let mut lost = head.owner.to_string();
        for _ in 0..LOST_MAX {
            let stands = log.claim_after(&lost, &claimant, expires_ms).await?;
            let Some(stands) = stands else {
                return Ok(true);
            };
            let stands = String::from_utf8_lossy(&stands).into_owned();
            let (_, other) = stands.split_once('/').unwrap_or_default();
            let other = Incarnation::from_text(other);
            // One of our own would have the place that we have.
            if other != *me && !self.front.runner.misses(&other) {
                return Ok(false);
            }
            lost = stands;
        }
        Ok(false)
    }

    fn words(&self, head: &Head, event_id: String) -> Words {
        Words {
            upstream: Arc::clone(&self.front.upstream),
            parts: self.parts.clone(),
            id: head.id.clone(),
            bytes_max: head.terms.bytes_max,
            stage: Stage::Cut {
                point: ResumePoint {
                    event_id,
                    retry: None,
                },
                lost: Reason::OwnerLost,
            },
        }
    }

    /// Tells the server that nobody waits, as the client would.
    fn stop(&self, head: &Head) -> impl Future<Output = ()> + Send + 'static {
        let (upstream, parts) = (Arc::clone(&self.front.upstream), self.parts.clone());
        let text = cancel_of(&head.id);
        async move {
            let told = upstream.tell_as(parts, text).await;
            if told.is_err() {
                tracing::debug!("a server could not be told that nobody waits");
            }
        }
    }
}
