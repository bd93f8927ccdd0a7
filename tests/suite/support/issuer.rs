//! An issuer of tokens: publishes its keys over HTTP, changes them, and signs what it is told to.

use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::Config;
use crate::scripted::{Act, Scripted};

/// Whom its tokens are for.
pub(crate) const AUDIENCE: &str = "https://tools.example/mcp";

/// A running issuer; gone when dropped.
#[derive(Debug)]
pub(crate) struct Issuer {
    server: Scripted,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    key: Mutex<(String, Arc<EcdsaKeyPair>)>,
    /// What is answered instead of the keys.
    instead: Mutex<Option<String>>,
}

fn new_key(id: &str) -> (String, Arc<EcdsaKeyPair>) {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    (id.to_owned(), Arc::new(key))
}

/// Base64 as URLs take it, without padding.
fn url(bytes: &[u8]) -> String {
    let text = super::base64(bytes).replace('+', "-").replace('/', "_");
    text.trim_end_matches('=').to_owned()
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let shared = Arc::new(Shared {
            key: Mutex::new(new_key("first")),
            instead: Mutex::default(),
        });
        let answering = Arc::clone(&shared);
        let server = Scripted::start(move |_| vec![answering.answer(), Act::Close]).await;
        Self { server, shared }
    }

    /// A configuration that wants its tokens, with further lines of its section.
    pub(crate) fn wanted_by(&self, config: Config, lines: &str) -> Config {
        let own = format!(
            "issuer = {:?}\njwks = {:?}\naudience = {AUDIENCE:?}\n{lines}",
            self.name(),
            format!("{}/jwks", self.name())
        );
        config.section("[auth.jwt]", &own)
    }

    pub(crate) fn name(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// From now on there is another key, and only that one.
    pub(crate) fn rotate(&self, id: &str) {
        *self.shared.key.lock().unwrap() = new_key(id);
    }

    /// From now on this is answered instead of the keys.
    pub(crate) fn answer_instead(&self, response: impl Into<String>) {
        *self.shared.instead.lock().unwrap() = Some(response.into());
    }

    pub(crate) fn answer_keys(&self) {
        *self.shared.instead.lock().unwrap() = None;
    }

    pub(crate) fn fetches(&self) -> usize {
        self.server.requests().len()
    }

    /// `Authorization` of a client, for an hour.
    pub(crate) fn token(&self, subject: &str) -> String {
        self.token_with(subject, json!({}), json!({}))
    }

    /// The same with other claims, and other members of the head.
    pub(crate) fn token_with(&self, subject: &str, claims: Value, head: Value) -> String {
        let (id, key) = self.shared.key.lock().unwrap().clone();
        let mut whole = json!({
            "iss": self.name(), "aud": AUDIENCE, "sub": subject, "exp": now_s() + 3_600,
            // Two tokens of one client differ.
            "jti": uuid::Uuid::new_v4().to_string(),
        });
        let mut header = json!({"alg": "ES256", "kid": id});
        for (written, changes) in [(&mut whole, claims), (&mut header, head)] {
            let members = written.as_object_mut().unwrap();
            members.extend(changes.as_object().unwrap().clone());
        }
        let message = format!(
            "{}.{}",
            url(header.to_string().as_bytes()),
            url(whole.to_string().as_bytes())
        );
        let signature = key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("Bearer {message}.{}", url(signature.as_ref()))
    }
}

pub(crate) fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}

impl Shared {
    fn answer(&self) -> Act {
        if let Some(instead) = self.instead.lock().unwrap().clone() {
            return Act::send(instead);
        }
        let (id, key) = self.key.lock().unwrap().clone();
        let point = key.public_key().as_ref();
        let key = json!({"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256",
            "x": url(&point[1..33]), "y": url(&point[33..])});
        Act::response("200 OK", json!({"keys": [key]}).to_string())
    }
}
