//! Calls with a key: several clients make the same call, on any replica, and all of them follow its one record.

use std::sync::atomic::Ordering;

use raincheck::mcp::version::Era;
use raincheck::runner::CallSpec;
use raincheck::runner::claim::CallClaim;
use raincheck::runner::responder::{CallAnswer, CallSubscriber, Reply};
use raincheck::task::digest::Digest;
use raincheck::task::plan::Plan;
use tokio::time::{sleep, timeout};

use crate::link::Link;
use crate::replica::call_spec;
use crate::server::Script;
use crate::world::World;

const KEYS: u64 = 3;
const CLIENTS: u64 = 3;

pub(crate) fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|number| format!("join-{number}"))
}

/// The clients of all keys, each by the key that it uses.
pub(crate) fn clients() -> impl Iterator<Item = String> {
    keys().flat_map(|key| (0..CLIENTS).map(move |_| key.clone()))
}

impl World {
    /// What the server does with each key.
    pub(crate) fn enter_joined(&self) {
        for key in keys() {
            let script = Script {
                runs_for: self.all.dice.millis(200, 15_000),
                asks: false,
                resumable: self.all.era == Era::Legacy && self.all.dice.percent(60),
            };
            self.all.server.enter(&key, script);
        }
    }

    /// Makes a call with a key, until its client has the answer, or has had enough of it.
    pub(crate) async fn joining_client(&self, key: &str) {
        for _ in 0..20 {
            let replica = self.replica();
            let call = self.joined(key);
            let claim = CallClaim::of_key(&call.client.caller, key, Digest::of(&[key]));
            let calling = async {
                let begun = replica.runner.call_once(claim, call).await;
                self.hear_joined(key, begun.ok()?, &replica.link).await
            };
            // Connections break, and processes die.
            let patience = self.all.dice.millis(500, 20_000);
            if let Ok(Some(())) = timeout(patience, calling).await {
                self.joined.fetch_add(1, Ordering::Relaxed);
                return;
            }
            sleep(self.all.dice.millis(100, 3_000)).await;
        }
    }

    /// `None`: the client comes again.
    async fn hear_joined(&self, key: &str, mut client: CallSubscriber, link: &Link) -> Option<()> {
        let answer = loop {
            match client.next().await? {
                Reply::Relay(_) => {}
                Reply::Answer(answer) => break answer,
            }
        };
        link.alive().await;
        client.into_guard().announce();
        match answer {
            CallAnswer::Result(result) => {
                let result: serde_json::Value = serde_json::from_str(&result).unwrap();
                if result["content"][0]["text"] != key {
                    let wrong = format!("{key}: the answer of another call");
                    self.all.book.wrong(wrong);
                }
                Some(())
            }
            CallAnswer::StoreUnavailable(_) | CallAnswer::Failed(_) => None,
            // The record ended as failed: every client with the key hears the same.
            CallAnswer::Error(_) => Some(()),
        }
    }

    fn joined(&self, key: &str) -> CallSpec {
        let mut call = call_spec(self.all.era, key, Plan::Held);
        call.client.era = Era::Legacy;
        call
    }

    /// A key runs once, however many come with it.
    pub(crate) fn judge_joined(&self) {
        for key in keys() {
            let effects = self.all.server.effects(&key);
            if effects > 1 {
                self.all.book.wrong(format!("{key}: ran {effects} times"));
            }
        }
    }
}
