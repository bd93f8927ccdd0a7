//! Turns `[store]` into where tasks live and how safely they are kept.

use std::path::PathBuf;

use super::common::{positive, tls};
use super::file_store;
use super::problem::Problem;
use super::secret::{SealKey, Secret};
use super::settings_store::{Location, Seal, StoreSettings, WaitSettings};
use super::settings_tls::ClientTlsFiles;
use crate::platform::environment::NO_STATE_DIRECTORY;

/// Checks `[store]`. `usual` is the location if none is configured.
pub(super) fn store(
    file: file_store::Store,
    usual: impl FnOnce() -> Option<Location>,
) -> Result<StoreSettings, Problem> {
    let over_tls = file
        .url
        .as_ref()
        .is_some_and(|url| url.expose().starts_with("rediss"));
    let location = location(file.url, file.namespace, usual)?;
    positive("store.read_patience", file.read_patience)?;
    positive("store.create_patience", file.create_patience)?;
    let tls = ClientTlsFiles {
        roots: file.tls.roots.map(PathBuf::from),
        identity: tls("store.tls", file.tls.certificate, file.tls.key)?,
    };
    let is_redis = matches!(location, Location::Redis { .. });
    if tls != ClientTlsFiles::default() && !(is_redis && over_tls) {
        return Err(Problem::new(
            "store.tls",
            "has an effect only if store.url begins with \"rediss\"",
        ));
    }
    let wait = WaitSettings {
        replicas: file.wait_replicas,
        aof: file.wait_aof,
        timeout: file.wait_timeout,
    };
    if wait.is_on() && !is_redis {
        let text = "replicas and their files are a thing of Redis; take wait_* out";
        return Err(Problem::new("store.wait_replicas", text));
    }
    positive("store.wait_timeout", wait.timeout)?;
    let key = seal_key("store.seal_key", file.seal_key)?;
    // A file has a key of its own beside it, and memory needs none.
    needs_key(file.seal, is_redis && key.is_none())?;
    Ok(StoreSettings {
        location,
        tls,
        wait,
        read_patience: file.read_patience,
        create_patience: file.create_patience,
        allow_eviction: file.allow_eviction,
        required_at_start: file.required_at_start,
        seal: file.seal,
        seal_key: key,
        seal_key_previous: seal_key("store.seal_key_previous", file.seal_key_previous)?,
    })
}

fn needs_key(seal: Seal, has_none: bool) -> Result<(), Problem> {
    let seal = match seal {
        Seal::Mixed if has_none => "mixed",
        Seal::Payloads if has_none => "payloads",
        Seal::Off | Seal::Mixed | Seal::Payloads => return Ok(()),
    };
    let text = format!(
        "is {seal:?}, and there is no key; set store.seal_key_file or store.seal_key, the same on all replicas"
    );
    Err(Problem::new("store.seal", text))
}

/// Reads a seal key. The error does not quote the text, because it is a secret.
fn seal_key(key: &str, text: Option<Secret>) -> Result<Option<SealKey>, Problem> {
    let Some(text) = text else { return Ok(None) };
    if PUBLISHED.contains(&text.expose().trim()) {
        let refused = "is one of our examples, which everybody knows; write your own, as `openssl \
                       rand -hex 32` makes it";
        return Err(Problem::new(key, refused));
    }
    let refused = "is not a key; write 64 hex digits, as `openssl rand -hex 32` makes them";
    let read = SealKey::from_hex(text.expose());
    read.map(Some).ok_or_else(|| Problem::new(key, refused))
}

/// Where tasks live. `usual` is the location if there is no URL.
fn location(
    url: Option<Secret>,
    name: Option<String>,
    usual: impl FnOnce() -> Option<Location>,
) -> Result<Location, Problem> {
    let refused = |text: &str| Problem::new("store.url", text);
    match url {
        None => usual().ok_or_else(|| {
            refused(&format!(
                "not set, and there is no usual place either ({NO_STATE_DIRECTORY}); write --store redb:/path/to/file"
            ))
        }),
        Some(url) => Ok(match url.expose().split_once(':') {
            Some(("memory", "")) => Location::Memory,
            Some(("redb", path)) if path.starts_with('~') => {
                return Err(refused(
                    "no shell makes a folder of \"~\" there; write the whole path",
                ));
            }
            Some(("redb", path)) if !path.is_empty() => Location::Embedded(path.into()),
            Some(("redb", _)) => return Err(refused("names no file; write redb:/path/to/file")),
            Some((scheme, rest)) if is_redis(scheme) && rest.starts_with("//") => Location::Redis {
                namespace: namespace(name)?,
                url,
            },
            // The text is not quoted: it may hold a password.
            _ => {
                return Err(refused(
                    "not a known store; write \"redb:PATH\", \"redis://HOST\", \"rediss://HOST\", \
                     \"redis+unix:///PATH\", \"redis-sentinel://HOST,HOST/NAME\", \
                     \"redis-cluster://HOST,HOST\" or \"memory:\"",
                ));
            }
        }),
    }
}

/// The keys in config.example.toml.
const PUBLISHED: [&str; 2] = [
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210",
];

fn is_redis(scheme: &str) -> bool {
    matches!(
        scheme,
        "redis"
            | "rediss"
            | "redis+unix"
            | "redis-sentinel"
            | "rediss-sentinel"
            | "redis-cluster"
            | "rediss-cluster"
    )
}

fn namespace(text: Option<String>) -> Result<String, Problem> {
    let refused = |text: String| Problem::new("store.namespace", text);
    let text = text.ok_or_else(|| {
        refused(
            "not set, but Redis needs it: services that share a Redis must not claim each other's \
             tasks; write the name of this service, the same on all its replicas (or --namespace NAME)"
                .into(),
        )
    })?;
    // Braces would move keys to other slots of a cluster.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(plain) {
        return Err(refused(format!(
            "{text:?} cannot be part of a key; write up to 64 letters, digits, \"-\", \"_\" and \".\""
        )));
    }
    Ok(text)
}
