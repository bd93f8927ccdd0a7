//! The stream of a held call to one client, from wherever it left off to the answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::entry::{Entry, Meaning};
use super::event_id::event_id;
use super::live::{Behind, Tail};
use super::log::{Head, Left, Log};
use super::takeover::Successor;
use super::words::Word;
use crate::downstream::heartbeat::{self, Heartbeat};
use crate::downstream::keep_alive::keep_alive;
use crate::downstream::proxy::Shared;
use crate::downstream::reply::Rpc;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::sse;
use crate::store::StoreError;
use crate::task::id::{Incarnation, TaskId};
use crate::upstream::channel::session::Said;

/// When a client that is cut off should come back.
pub(super) const RETRY_MS: u64 = 1000;

/// How often the log of a call that another replica carries is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A replica that was seen living by nobody for so long carries nothing any more. Longer than a
/// heartbeat takes to be known.
const LOST_AFTER: Duration = Duration::from_secs(4);

/// How often one reader tries to have the call of a lost owner carried on.
const TRIES: u32 = 3;

pub(super) struct Reader {
    front: Shared,
    hold: TaskId,
    log: Log,
    /// The last entry that the client has.
    after: u64,
    ready: VecDeque<Bytes>,
    feed: Feed,
    heartbeat: Option<Heartbeat>,
    beat: Interval,
    primes: bool,
    has_answer: bool,
}

/// Where what is said comes from.
enum Feed {
    /// Another replica cannot know of the call yet.
    Unbegun(watch::Receiver<Tail>),
    Here(watch::Receiver<Tail>),
    Elsewhere(Box<Elsewhere>),
    Over,
}

struct Elsewhere {
    successor: Successor,
    look: Interval,
    /// Since when its owner is missed.
    missed: Option<Instant>,
    /// How often it was tried to carry the call on here.
    tries: u32,
}

/// What was found.
enum Found {
    Begun(watch::Receiver<Tail>),
    /// The call is carried on here.
    Here(watch::Receiver<Tail>),
    Said(Vec<(u64, Entry)>),
    /// An answer in place of the call's own, and nothing more.
    Lost(String),
    /// Nothing more.
    Over,
}

impl Reader {
    pub(super) fn new(
        front: &Shared,
        hold: TaskId,
        log: Log,
        heartbeat: Option<Heartbeat>,
    ) -> Self {
        Self {
            front: Arc::clone(front),
            hold,
            log,
            after: 0,
            ready: VecDeque::new(),
            feed: Feed::Over,
            heartbeat,
            beat: keep_alive(),
            primes: false,
            has_answer: false,
        }
    }

    pub(super) fn behind(self, after: u64) -> Self {
        Self { after, ..self }
    }

    pub(super) fn following(self, tail: watch::Receiver<Tail>) -> Self {
        Self {
            feed: Feed::Unbegun(tail),
            ..self
        }
    }

    pub(super) fn asking(self, successor: Successor) -> Self {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let elsewhere = Elsewhere {
            successor,
            look,
            missed: None,
            tries: 0,
        };
        Self {
            feed: Feed::Elsewhere(Box::new(elsewhere)),
            ..self
        }
    }

    /// Tells first where to come back to.
    pub(super) fn primed(self) -> Self {
        Self {
            primes: true,
            ..self
        }
    }

    /// The same for a client that came back to here.
    pub(super) fn resumed(mut self) -> Self {
        let id = event_id(self.hold, self.after);
        self.ready.push_back(sse::priming(&id, RETRY_MS));
        self
    }

    /// Dropped, the client is gone, and nothing else happens.
    pub(super) fn events(self) -> BoxStream<'static, Bytes> {
        let events = stream::unfold(self, |mut reader| async {
            let Some(event) = reader.next().await else {
                reader.delivered();
                return None;
            };
            Some((event, reader))
        });
        events.boxed()
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let found = tokio::select! {
                found = find(&self.front, &self.log, &mut self.feed, &mut self.after) => found,
                _ = self.beat.tick() => return Some(sse::COMMENT),
                () = heartbeat::due(self.heartbeat.as_ref()) => {
                    let beat = self.heartbeat.as_mut().map(Heartbeat::beat)?;
                    return Some(sse::event(&beat));
                }
            };
            match found {
                Found::Begun(tail) => {
                    self.feed = Feed::Here(tail);
                    if self.primes {
                        let id = event_id(self.hold, 0);
                        return Some(sse::priming(&id, RETRY_MS));
                    }
                }
                Found::Here(tail) => self.feed = Feed::Here(tail),
                Found::Said(entries) => entries
                    .into_iter()
                    .for_each(|(number, entry)| self.take(number, &entry)),
                Found::Lost(answer) => {
                    let id = event_id(self.hold, self.after + 1);
                    self.ready.push_back(sse::event_with_id(&id, &answer));
                    self.feed = Feed::Over;
                }
                Found::Over if self.ready.is_empty() => return None,
                Found::Over => self.feed = Feed::Over,
            }
        }
    }

    /// The connection asks for what comes after the answer: its client has it, as far as we can know.
    fn delivered(self) {
        let Self {
            front,
            log,
            after,
            has_answer,
            ..
        } = self;
        if !has_answer {
            return;
        }
        let delivered = front.holds.kept.delivered(log.name(), log.now_ms());
        let Some(expires_ms) = delivered else { return };
        front.runner.attend(async move {
            // Behind the answer stands that nothing follows; with it the whole log goes sooner.
            let end = Entry::new(Meaning::End, String::new());
            if let Err(error) = log.append(after + 1, &end, expires_ms).await {
                tracing::debug!(%error, "an answer that its client has stays as long as others");
            }
        });
    }

    fn take(&mut self, number: u64, entry: &Entry) {
        self.after = number;
        match entry.meaning() {
            Meaning::Message => {}
            Meaning::Answer => {
                self.feed = Feed::Over;
                self.has_answer = true;
            }
            Meaning::End => {
                self.feed = Feed::Over;
                return;
            }
            Meaning::Lost => return,
        }
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.saw(entry.json());
        }
        let id = event_id(self.hold, number);
        self.ready.push_back(sse::event_with_id(&id, entry.json()));
    }
}

/// Cancel safe: nothing is found that is not given back.
async fn find(front: &Shared, log: &Log, feed: &mut Feed, after: &mut u64) -> Found {
    match feed {
        Feed::Unbegun(tail) => {
            if tail.wait_for(|tail| tail.is_begun).await.is_err() {
                return Found::Over;
            }
            Found::Begun(tail.clone())
        }
        Feed::Here(tail) => find_here(log, tail, after).await,
        Feed::Elsewhere(elsewhere) => elsewhere.find(front, log, *after).await,
        Feed::Over => Found::Over,
    }
}

async fn find_here(log: &Log, tail: &mut watch::Receiver<Tail>, after: &mut u64) -> Found {
    loop {
        let behind = tail.borrow_and_update().behind(*after);
        match behind {
            Behind::Said(entries) if entries.is_empty() => {
                if tail.changed().await.is_err() {
                    return Found::Over;
                }
            }
            Behind::Said(entries) => return Found::Said(entries),
            // A slow client. What the log has no more is lost to it; the answer never is.
            Behind::From(first) => match log.behind(*after).await {
                Ok(entries) if !entries.is_empty() => return Found::Said(entries),
                Ok(_) | Err(_) => *after = first - 1,
            },
        }
    }
}

impl Elsewhere {
    async fn find(&mut self, front: &Shared, log: &Log, after: u64) -> Found {
        loop {
            tokio::select! {
                _ = self.look.tick() => {}
                // Its client comes back to another replica.
                () = front.closing.cancelled() => return Found::Over,
            }
            // A store that is away is waited for.
            if let Ok(Some(found)) = self.look(front, log, after).await {
                return found;
            }
        }
    }

    /// `None`: nothing new.
    async fn look(
        &mut self,
        front: &Shared,
        log: &Log,
        after: u64,
    ) -> Result<Option<Found>, StoreError> {
        if let Some(tail) = front.holds.find_begun(log.name()) {
            return Ok(Some(Found::Here(tail)));
        }
        let entries = log.behind(after).await?;
        if !entries.is_empty() {
            self.missed = None;
            return Ok(Some(Found::Said(entries)));
        }
        let Some(head) = log.head().await?.filter(|head| !head.is_over) else {
            // What was written before we knew.
            let entries = log.behind(after).await?;
            let is_all = entries.is_empty();
            let found = if is_all {
                Found::Over
            } else {
                Found::Said(entries)
            };
            return Ok(Some(found));
        };
        if !self.is_lost(front, &head) {
            return Ok(None);
        }
        let entries = log.behind(after).await?;
        if !entries.is_empty() {
            return Ok(Some(Found::Said(entries)));
        }
        match log.left(&head).await? {
            Left::Resumable { .. } if self.tries < TRIES => {
                // It takes a moment, here or where another client of it is.
                self.tries += 1;
                self.missed = None;
                self.successor.clone().begin(log.clone(), after);
                Ok(None)
            }
            Left::Answered => Ok(Some(Found::Over)),
            Left::Resumable { .. } | Left::Lost => Ok(Some(Found::Lost(lost(&head)))),
        }
    }

    /// Also where we are the owner: then the call would be here.
    fn is_lost(&mut self, front: &Shared, head: &Head) -> bool {
        let owner = Incarnation::from_text(&head.owner);
        if owner != *front.runner.incarnation() && !front.runner.misses(&owner) {
            self.missed = None;
            return false;
        }
        let now = Instant::now();
        let since = *self.missed.get_or_insert(now);
        now.saturating_duration_since(since) >= LOST_AFTER
    }
}

fn lost(head: &Head) -> String {
    let failure = Failure::new(Reason::OwnerLost, SideEffect::Unknown);
    Rpc::failure(head.id.get(), failure).json
}

/// A call that nobody holds.
pub(super) fn unheld(source: BoxStream<'static, Word>) -> BoxStream<'static, Bytes> {
    let said = source.filter_map(|word| std::future::ready(word.said));
    let state = (said.boxed(), keep_alive());
    stream::unfold(state, |(mut source, mut beat)| async {
        let event = tokio::select! {
            said = source.next() => match said? {
                Said::Message(json) | Said::Answer(json) => sse::event(&json),
            },
            _ = beat.tick() => sse::COMMENT,
        };
        Some((event, (source, beat)))
    })
    .boxed()
}
