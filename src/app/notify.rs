//! Builds the receivers of webhooks from the configuration, and the jobs that tell them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::{AppError, line};
use crate::config::{Config, NotifySettings};
use crate::http_address::{AllowedAddresses, HttpAddress};
use crate::notify::{self, Receiver};
use crate::store::ledger::Ledger;
use crate::store::outbox::{Outbox, OutboxQueues};
use crate::task::notify_rules::{NotifyRule, NotifyRules};
use crate::tls::client::{self, Files};

/// Which receivers hear of which tasks.
pub(super) fn rules(config: &Config) -> NotifyRules {
    let rules = config.notify.iter().map(|receiver| NotifyRule {
        receiver: receiver.receiver,
        states: receiver.states.clone(),
        tools: receiver.tools.clone(),
        retry_ms: u64::try_from(receiver.retry_for.as_millis()).unwrap_or(u64::MAX),
    });
    NotifyRules::new(rules.collect())
}

/// The receivers, and the way of tasks to them.
pub(super) struct Webhooks {
    receivers: Vec<Receiver>,
    queues: OutboxQueues,
}

impl Webhooks {
    pub(super) fn new(config: &Config) -> Result<(Self, Outbox), AppError> {
        let receivers: Result<Vec<_>, _> = config.notify.iter().map(receiver).collect();
        let receivers = receivers?;
        let (outbox, queues) = Outbox::new(receivers.iter().map(|receiver| receiver.id));
        Ok((Self { receivers, queues }, outbox))
    }

    /// Tells the receivers until `stop`.
    pub(super) fn start(self, ledger: &Ledger, services: &TaskTracker, stop: &CancellationToken) {
        let Self {
            receivers,
            mut queues,
        } = self;
        for receiver in receivers {
            if let Some(queue) = queues.remove(&receiver.id) {
                let receiver = Arc::new(receiver);
                let telling = notify::tell(receiver, ledger.clone(), queue, stop.clone());
                services.spawn(telling);
            }
        }
    }
}

fn receiver(settings: &NotifySettings) -> Result<Receiver, AppError> {
    let is_https = settings.url.scheme_str() == Some("https");
    let tls = is_https
        .then(|| client::client(Files::default()))
        .transpose();
    let address = HttpAddress::new(&settings.url, tls.map_err(line)?);
    let address =
        address.ok_or_else(|| AppError("notify: nothing can be sent to an address".into()))?;
    let allowed = match (settings.allow_private, is_https) {
        (false, _) => AllowedAddresses::Public,
        (true, true) => AllowedAddresses::All,
        // What is not encrypted stays in the operator's own network.
        (true, false) => AllowedAddresses::Private,
    };
    Ok(Receiver {
        id: settings.receiver,
        host: settings.url.host().unwrap_or_default().into(),
        address: address.only(allowed),
        secrets: settings.secrets.clone(),
        is_gone: AtomicBool::new(false),
    })
}
