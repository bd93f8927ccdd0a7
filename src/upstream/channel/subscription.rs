//! Change notifications of a line, of either era.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

use crate::mcp::json::{Object, Writer};
use crate::mcp::version::Era;
use crate::upstream::channel::ask::ask;
use crate::upstream::channel::event::{LineEvent, Notice};
use crate::upstream::channel::pool::{HeldLine, LinePool};
use crate::upstream::channel::shared::LineTicket;
use crate::upstream::listen::{ListenEvent, ListenRequest, Listening};
use crate::upstream::pool::{MayAsk, SessionKey};
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;
use crate::upstream::wanted::{WantedChanges, is_change};

pub(super) fn listen(pool: Arc<LinePool>, era: Option<Era>, wish: ListenRequest) -> Listening {
    let listener = LineSubscription {
        pool,
        era,
        wish,
        source: None,
        said: VecDeque::new(),
        over: false,
    };
    stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((event, listener))
    })
    .boxed()
}

struct LineSubscription {
    pool: Arc<LinePool>,
    era: Option<Era>,
    wish: ListenRequest,
    source: Option<OpenLine>,
    said: VecDeque<ListenEvent>,
    over: bool,
}

/// A line that is held while its changes are heard.
struct OpenLine {
    changes: LineChanges,
    _held: HeldLine,
}

enum LineChanges {
    /// A subscription, which names itself in each notification.
    Modern(LineTicket),
    /// Everything that the server says on the line, and what of it the listener wants.
    Legacy(broadcast::Receiver<Arc<Notice>>, WantedChanges),
}

impl LineSubscription {
    async fn next(&mut self) -> Option<ListenEvent> {
        if self.over {
            return None;
        }
        if self.source.is_none() {
            self.source = self.open().await;
        }
        if let Some(event) = self.said.pop_front() {
            return Some(event);
        }
        let event = match self.source.as_mut().map(|line| &mut line.changes) {
            Some(LineChanges::Modern(ticket)) => hear_modern(ticket).await,
            Some(LineChanges::Legacy(notices, wanted)) => hear_legacy(notices, wanted).await,
            None => None,
        };
        if event.is_none() {
            self.over = true;
            self.source = None;
        }
        Some(event.unwrap_or(ListenEvent::Ended))
    }

    async fn line(&self, key: &SessionKey) -> Option<HeldLine> {
        let credentials = self.wish.credentials.as_ref();
        self.pool.get(key, MayAsk::Never, credentials).await.ok()
    }

    async fn open(&mut self) -> Option<OpenLine> {
        let capabilities = translate::without_tasks(&self.wish.capabilities).ok()?;
        match self.era? {
            Era::Modern => {
                let key = SessionKey::new(Era::Modern, self.wish.caller, "{}");
                let held = self.line(&key).await?;
                let mut ticket = held.session.open(MayAsk::Never)?;
                ticket.cancel_on_drop = true;
                let filter = [("notifications", &*self.wish.filter)];
                let params = translate::own_params(&capabilities, &filter);
                let text = translate::request(
                    &RequestId::number(ticket.id),
                    "subscriptions/listen",
                    &params,
                );
                ticket.send(text).await;
                Some(OpenLine {
                    changes: LineChanges::Modern(ticket),
                    _held: held,
                })
            }
            Era::Legacy => {
                let key = SessionKey::legacy(self.wish.caller, &capabilities);
                let held = self.line(&key).await?;
                let line = &held.session;
                let notices = line.notices()?;
                let described = line.described.get()?;
                let mut wanted = WantedChanges::of(&self.wish.filter, described.capabilities.get());
                let mut taken = Vec::new();
                for uri in wanted.uris.iter().flatten() {
                    let mut params = Writer::object();
                    params.str("uri", uri);
                    let asked = ask(line, "resources/subscribe", &params.end()).await;
                    if matches!(asked, LineEvent::Result(_)) {
                        taken.push(uri.clone());
                    }
                }
                wanted.uris = wanted.uris.map(|_| taken);
                self.said
                    .push_back(ListenEvent::Acknowledged(wanted.honoured()));
                Some(OpenLine {
                    changes: LineChanges::Legacy(notices, wanted),
                    _held: held,
                })
            }
        }
    }
}

async fn hear_modern(ticket: &mut LineTicket) -> Option<ListenEvent> {
    loop {
        let notice = match ticket.next().await {
            LineEvent::Notice(notice) => notice,
            LineEvent::Progress(_) | LineEvent::Log(_) | LineEvent::Question(_) => continue,
            LineEvent::Result(_)
            | LineEvent::Error(_)
            | LineEvent::Refused(_)
            | LineEvent::Unsent(_)
            | LineEvent::Failed(_) => {
                return None;
            }
        };
        if &*notice.method == "notifications/subscriptions/acknowledged" {
            let honoured = notice.params.as_deref().and_then(|params: &RawValue| {
                let params = Object::parse(params.get()).ok()?;
                Some(params.get("notifications")?.get().to_owned())
            });
            return Some(ListenEvent::Acknowledged(honoured?));
        }
        if is_change(&notice.method) {
            return Some(notification(&notice));
        }
    }
}

async fn hear_legacy(
    notices: &mut broadcast::Receiver<Arc<Notice>>,
    wanted: &WantedChanges,
) -> Option<ListenEvent> {
    loop {
        // A listener that was too slow starts anew, and so learns that something may have changed.
        let notice = notices.recv().await.ok()?;
        if wanted.hears(&notice.method, notice.params.as_deref()) {
            return Some(notification(&notice));
        }
    }
}

fn notification(notice: &Notice) -> ListenEvent {
    ListenEvent::Notification {
        method: notice.method.clone().into_string(),
        params: notice.params.clone(),
    }
}
