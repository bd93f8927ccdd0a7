//! An issuer of tokens: publishes its keys over HTTP, changes them, and signs what it is told to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Config;

/// Whom its tokens are for.
pub(crate) const AUDIENCE: &str = "https://tools.example/mcp";

/// A running issuer; gone when dropped.
#[derive(Debug)]
pub(crate) struct Issuer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Shared {
    key: Mutex<(String, Arc<EcdsaKeyPair>)>,
    /// What is answered instead of the keys.
    instead: Mutex<Option<String>>,
    fetches: AtomicU32,
}

fn new_key(id: &str) -> (String, Arc<EcdsaKeyPair>) {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    (id.to_owned(), Arc::new(key))
}

fn url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |group, byte| (group << 8) | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(
                ALPHABET[(group >> (18 - 6 * place)) as usize & 63],
            ));
        }
    }
    text
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            key: Mutex::new(new_key("first")),
            instead: Mutex::default(),
            fetches: AtomicU32::new(0),
        });
        let stop = CancellationToken::new();
        let serving = serve(listener, Arc::clone(&shared));
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Self {
            address,
            shared,
            _stop: stop.drop_guard(),
        }
    }

    /// A configuration that wants its tokens, with further lines of its section.
    pub(crate) fn wanted_by(&self, config: Config, lines: &str) -> Config {
        let own = format!(
            "issuer = {:?}\njwks = {:?}\naudience = {AUDIENCE:?}\n{lines}",
            self.name(),
            format!("http://{}/jwks", self.address)
        );
        config.section("[auth.jwt]", &own)
    }

    pub(crate) fn name(&self) -> String {
        format!("http://{}", self.address)
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

    pub(crate) fn fetches(&self) -> u32 {
        self.shared.fetches.load(Ordering::Relaxed)
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

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = answer(stream, &shared).await;
    }
}

async fn answer(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    shared.fetches.fetch_add(1, Ordering::Relaxed);
    let instead = shared.instead.lock().unwrap().clone();
    let response = instead.unwrap_or_else(|| {
        let (id, key) = shared.key.lock().unwrap().clone();
        let point = key.public_key().as_ref();
        let key = json!({"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256",
            "x": url(&point[1..33]), "y": url(&point[33..])});
        let body = json!({"keys": [key]}).to_string();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    });
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
