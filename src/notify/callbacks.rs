//! The addresses that clients give as the receivers of their subscriptions.

use std::sync::Arc;

use hyper::Uri;
use rustls::ClientConfig;

use super::destination;
use super::receiver::Receiver;
use super::signature::WebhookSecret;
use crate::net::http_address::{AllowedAddresses, HttpAddress};
use crate::task::events::subscriptions::{SecretText, Subscription};
use crate::tls::kept::Kept;

/// Where clients may have events sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackReach {
    /// To the public internet, over https.
    Public,
    /// Also to the operator's own network, there over http, too.
    Anywhere,
}

/// The state that is needed to reach the receivers of clients.
#[derive(Debug, Clone)]
pub struct Callbacks {
    tls: Arc<Kept<ClientConfig>>,
    reach: CallbackReach,
}

impl Callbacks {
    pub fn new(reach: CallbackReach, tls: Arc<Kept<ClientConfig>>) -> Self {
        Self { tls, reach }
    }

    /// The receiver of the subscription. `None`: nothing may be sent to its address.
    pub fn receiver(&self, subscription: &Subscription, now_ms: u64) -> Option<Receiver> {
        let url: Uri = subscription.key.url.parse().ok()?;
        let has_user = url.authority()?.as_str().contains('@');
        let is_http = matches!(url.scheme_str(), Some("http" | "https"));
        if has_user || !is_http || url.host()?.is_empty() {
            return None;
        }
        let is_private = self.reach == CallbackReach::Anywhere;
        destination::check(&url, is_private).ok()?;
        // A name may lead elsewhere at each attempt, so the address is checked again when it is resolved.
        let allowed = AllowedAddresses::of(is_private, url.scheme_str() == Some("https"));
        let address = HttpAddress::new(&url, Some(Arc::clone(&self.tls)))?;
        let secrets = subscription.secrets(now_ms).map(SecretText::expose);
        Some(Receiver {
            host: url.host()?.into(),
            address: address.only(allowed),
            secrets: secrets.filter_map(WebhookSecret::parse).collect(),
            subscription: Some(subscription.key.id.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::events::subscriptions::SubscriptionKey;
    use crate::task::id::Caller;
    use crate::tls::client::{Files, client};

    /// A name tells nothing of where it leads: what it leads to is checked when it is asked.
    #[test]
    fn a_name_is_held_to_the_reach() {
        let tls = client(Files::default()).unwrap();
        let allowed = |reach, url: &str| {
            let key = SubscriptionKey::new(&Caller::from_bytes([1; 16]), url, None, None);
            let subscription = Subscription::new(key, SecretText::new("s"), 0, 1);
            let receiver = Callbacks::new(reach, Arc::clone(&tls)).receiver(&subscription, 0)?;
            Some(receiver.address.allowed())
        };
        let (https, http) = ("https://rebinds.example/in", "http://rebinds.example/in");
        let public = allowed(CallbackReach::Public, https);
        assert_eq!(public, Some(AllowedAddresses::Public));
        assert_eq!(allowed(CallbackReach::Public, http), None);
        let anywhere = allowed(CallbackReach::Anywhere, http);
        assert_eq!(anywhere, Some(AllowedAddresses::Private));
    }
}
