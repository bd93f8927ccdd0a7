//! Builds the receivers of webhooks from the configuration, and the jobs that notify them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::{AppError, line};
use crate::config::{Config, NotifySettings};
use crate::net::http_address::{AllowedAddresses, HttpAddress};
use crate::notify::callbacks::Callbacks;
use crate::notify::{self, ConfiguredReceiver, Receiver, SubscribedReceivers};
use crate::store::key_value::KeyValue;
use crate::store::ledger::Ledger;
use crate::store::outbox::{Outbox, OutboxQueue, OutboxQueues};
use crate::store::subscriptions::SubscriptionStore;
use crate::task::notices::ReceiverId;
use crate::task::notify_rules::{NotifyRule, NotifyRules};
use crate::tls::client::{self, Files};

/// Returns the rules for which receivers are notified of which tasks.
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
    receivers: Vec<(ReceiverId, ConfiguredReceiver)>,
    queues: OutboxQueues,
    subscribed: Option<(SubscribedReceivers, OutboxQueue)>,
    /// The state that is needed to reach the receivers of clients, if clients can subscribe.
    pub(super) callbacks: Option<Callbacks>,
}

impl Webhooks {
    pub(super) fn new(config: &Config, kv: &KeyValue) -> Result<(Self, Outbox), AppError> {
        let configured = config.notify.iter();
        let receivers: Result<Vec<_>, AppError> = configured
            .map(|settings| Ok((settings.receiver, receiver(settings)?)))
            .collect();
        let receivers = receivers?;
        let (outbox, queues) = Outbox::new(receivers.iter().map(|(id, _)| *id));
        let webhooks = Self {
            receivers,
            queues,
            subscribed: None,
            callbacks: None,
        };
        let Some(reach) = config.events.and_then(|events| events.webhooks) else {
            return Ok((webhooks, outbox));
        };
        let tls = client::client(Files::default()).map_err(line)?;
        let callbacks = Callbacks::new(reach, tls);
        let store = SubscriptionStore::new(kv.for_creates());
        let (outbox, queue) = outbox.with_subscriptions();
        let webhooks = Self {
            subscribed: Some((SubscribedReceivers::new(store, callbacks.clone()), queue)),
            callbacks: Some(callbacks),
            ..webhooks
        };
        Ok((webhooks, outbox))
    }

    /// Starts the jobs that notify the receivers until `stop`.
    pub(super) fn start(self, ledger: &Ledger, services: &TaskTracker, stop: &CancellationToken) {
        let mut queues = self.queues;
        for (id, receiver) in self.receivers {
            if let Some(queue) = queues.remove(&id) {
                let receiver = Arc::new(receiver);
                let telling = notify::tell(receiver, ledger.clone(), queue, stop.clone());
                services.spawn(telling);
            }
        }
        if let Some((subscribed, queue)) = self.subscribed {
            let subscribed = Arc::new(subscribed);
            let telling = notify::tell_subscribed(subscribed, ledger.clone(), queue, stop.clone());
            services.spawn(telling);
        }
    }
}

fn receiver(settings: &NotifySettings) -> Result<ConfiguredReceiver, AppError> {
    let is_https = settings.url.scheme_str() == Some("https");
    let tls = is_https
        .then(|| client::client(Files::default()))
        .transpose();
    let address = HttpAddress::new(&settings.url, tls.map_err(line)?);
    let address =
        address.ok_or_else(|| AppError("notify: nothing can be sent to an address".into()))?;
    let address = address
        .through_proxy(&settings.url)
        .map_err(|error| AppError(format!("notify: {error}")))?;
    let allowed = AllowedAddresses::of(settings.allow_private, is_https);
    let receiver = Receiver {
        host: settings.url.host().unwrap_or_default().into(),
        address: address.only(allowed),
        secrets: settings.secrets.clone(),
        subscription: None,
    };
    Ok(ConfiguredReceiver::new(receiver))
}
