//! Change notifications of a line, of either era.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::broadcast;

use crate::base::unfold::Unfold;
use crate::mcp::changes::is_change;
use crate::mcp::json::{Object, Writer};
use crate::mcp::version::Era;
use crate::upstream::line::ask::ask;
use crate::upstream::line::event::{LineEvent, LineNotice};
use crate::upstream::line::pool::{LinePool, PooledLine};
use crate::upstream::line::shared::LineTicket;
use crate::upstream::listen::{ListenEvent, ListenRequest, Listening};
use crate::upstream::pool::{MayAsk, PoolKey};
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;
use crate::upstream::wanted::WantedChanges;

pub(super) fn listen(pool: Arc<LinePool>, era: Option<Era>, request: ListenRequest) -> Listening {
    LineSubscription {
        pool,
        era,
        request,
        source: None,
        said: VecDeque::new(),
        over: false,
    }
    .into_stream()
}

struct LineSubscription {
    pool: Arc<LinePool>,
    era: Option<Era>,
    request: ListenRequest,
    source: Option<OpenLine>,
    said: VecDeque<ListenEvent>,
    over: bool,
}

/// A line that is held while its changes are received.
struct OpenLine {
    changes: LineChanges,
    _pooled: PooledLine,
}

enum LineChanges {
    /// A subscription at a modern server, which names it in each notification.
    Modern(LineTicket),
    /// All notifications of a legacy server, and which of them the client wants.
    Legacy(broadcast::Receiver<Arc<LineNotice>>, WantedChanges),
}

impl Unfold for LineSubscription {
    type Item = ListenEvent;

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
}

impl LineSubscription {
    async fn line(&self, key: &PoolKey) -> Option<PooledLine> {
        let credentials = self.request.credentials.as_ref();
        self.pool.get(key, MayAsk::Never, credentials).await.ok()
    }

    async fn open(&mut self) -> Option<OpenLine> {
        let capabilities = translate::without_tasks(&self.request.capabilities).ok()?;
        match self.era? {
            Era::Modern => {
                let key = PoolKey::new(Era::Modern, self.request.caller, "{}");
                let pooled = self.line(&key).await?;
                let mut ticket = pooled.session.open(MayAsk::Never)?;
                // The server keeps a subscription until it is cancelled.
                ticket.cancel_on_drop = true;
                let filter = [("notifications", &*self.request.filter)];
                let params = translate::own_params(&capabilities, &filter);
                let text = translate::request(
                    &RequestId::number(ticket.id),
                    "subscriptions/listen",
                    &params,
                );
                ticket.send(text).await;
                Some(OpenLine {
                    changes: LineChanges::Modern(ticket),
                    _pooled: pooled,
                })
            }
            Era::Legacy => {
                let key = PoolKey::legacy(self.request.caller, &capabilities);
                let pooled = self.line(&key).await?;
                let line = &pooled.session;
                // Before the requests below, so that a change right after the server's answer is not missed.
                let notices = line.notices()?;
                let described = line.described.get()?;
                let mut wanted =
                    WantedChanges::of(&self.request.filter, described.capabilities.get());
                let mut taken = Vec::new();
                for uri in wanted.uris.iter().flatten() {
                    let mut params = Writer::object();
                    params.str("uri", uri);
                    let asked = ask(line, "resources/subscribe", &params.end()).await;
                    // A resource that the server refuses is not acknowledged, and the others are still served.
                    if asked.is_ok() {
                        taken.push(uri.clone());
                    }
                }
                wanted.uris = wanted.uris.map(|_| taken);
                self.said
                    .push_back(ListenEvent::Acknowledged(wanted.honoured()));
                Some(OpenLine {
                    changes: LineChanges::Legacy(notices, wanted),
                    _pooled: pooled,
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
    notices: &mut broadcast::Receiver<Arc<LineNotice>>,
    wanted: &WantedChanges,
) -> Option<ListenEvent> {
    loop {
        // A subscription that was too slow begins anew, so that its client learns that something may have
        // changed.
        let notice = notices.recv().await.ok()?;
        if wanted.hears(&notice.method, notice.params.as_deref()) {
            return Some(notification(&notice));
        }
    }
}

fn notification(notice: &LineNotice) -> ListenEvent {
    ListenEvent::Notification {
        method: notice.method.clone().into_string(),
        params: notice.params.clone(),
    }
}
