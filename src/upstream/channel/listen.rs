//! Change notifications of a line, of either era.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::value::RawValue;

use super::ask::ask;
use super::pool::{Key, Pool};
use super::requests::{Asks, Channel, Listener, Ticket};
use super::said::{Notice, Said};
use crate::mcp::json::{Object, Writer};
use crate::mcp::version::Era;
use crate::upstream::listen::{ListenEvent, Listening, Wish};
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;
use crate::upstream::wanted::{Wanted, is_change};

pub(super) fn listen(pool: Arc<Pool>, era: Option<Era>, wish: Wish) -> Listening {
    let ear = Ear {
        pool,
        era,
        wish,
        source: None,
        said: VecDeque::new(),
        over: false,
    };
    stream::unfold(ear, |mut ear| async {
        let event = ear.next().await?;
        Some((event, ear))
    })
    .boxed()
}

struct Ear {
    pool: Arc<Pool>,
    era: Option<Era>,
    wish: Wish,
    source: Option<Source>,
    said: VecDeque<ListenEvent>,
    over: bool,
}

enum Source {
    /// A subscription, which names itself in each notification.
    Modern(Ticket),
    /// Everything that the server says there, and what of it the listener wants.
    Legacy(Listener, Wanted),
}

impl Ear {
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
        let event = match &mut self.source {
            Some(Source::Modern(ticket)) => hear_modern(ticket).await,
            Some(Source::Legacy(listener, wanted)) => hear_legacy(listener, wanted).await,
            None => None,
        };
        if event.is_none() {
            self.over = true;
            self.source = None;
        }
        Some(event.unwrap_or(ListenEvent::Ended))
    }

    async fn line(&self, key: &Key) -> Option<Arc<Channel>> {
        let credentials = self.wish.credentials.as_ref();
        let held = self.pool.get(key, Asks::Never, credentials).await;
        held.ok().map(|held| held.channel)
    }

    async fn open(&mut self) -> Option<Source> {
        let capabilities = translate::without_tasks(&self.wish.capabilities).ok()?;
        match self.era? {
            Era::Modern => {
                let key = Key::new(Era::Modern, self.wish.caller, &capabilities);
                let mut ticket = self.line(&key).await?.open(Asks::Never)?;
                ticket.cancel_on_drop = true;
                let filter = [("notifications", &*self.wish.filter)];
                let params = translate::own_params(&capabilities, &filter);
                let text = translate::request(
                    &RequestId::number(ticket.id),
                    "subscriptions/listen",
                    &params,
                );
                ticket.send(text).await;
                Some(Source::Modern(ticket))
            }
            Era::Legacy => {
                let key = Key::new(Era::Legacy, self.wish.caller, &capabilities);
                let channel = self.line(&key).await?;
                let listener = channel.listen()?;
                let described = channel.described.get()?;
                let mut wanted = Wanted::of(&self.wish.filter, described.capabilities.get());
                let mut taken = Vec::new();
                for uri in wanted.uris.iter().flatten() {
                    let mut params = Writer::object();
                    params.str("uri", uri);
                    let asked = ask(&channel, "resources/subscribe", &params.end()).await;
                    if matches!(asked, Said::Result(_)) {
                        taken.push(uri.clone());
                    }
                }
                wanted.uris = wanted.uris.map(|_| taken);
                self.said
                    .push_back(ListenEvent::Acknowledged(wanted.honoured()));
                Some(Source::Legacy(listener, wanted))
            }
        }
    }
}

async fn hear_modern(ticket: &mut Ticket) -> Option<ListenEvent> {
    loop {
        let notice = match ticket.next().await {
            Said::Notice(notice) => notice,
            Said::Progress(_) | Said::Log(_) | Said::Question(_) => continue,
            Said::Result(_)
            | Said::Error(_)
            | Said::Refused(_)
            | Said::Unsent(_)
            | Said::Failed(_) => {
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

async fn hear_legacy(listener: &mut Listener, wanted: &Wanted) -> Option<ListenEvent> {
    loop {
        // Whoever was too slow starts anew, and so learns that something may have changed.
        let notice = listener.notices.recv().await.ok()?;
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
