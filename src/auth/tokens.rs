//! The file of bearer tokens: a name and the SHA-256 of a token on each line, so that the file holds no credential.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};

use super::callers::Callers;
use super::identity::{Identity, label_of, name_of};
use crate::base::io_reason::io_reason;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::mcp::hex;

/// More clients than that belong to an issuer of tokens.
const TOKENS_MAX: usize = 10_000;

/// The reason why a file of tokens cannot be used, in one line and without the content of the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {text}", path.display())]
pub struct TokensError {
    path: PathBuf,
    text: String,
}

/// The tokens of the file. They are read anew while raincheck serves.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: Mutex<Arc<KnownTokens>>,
}

/// The tokens as a file has them now, which do not count yet.
#[derive(Debug)]
pub struct NewTokens(Arc<KnownTokens>);

/// By the SHA-256 of the token.
type KnownTokens = PrehashedMap<[u8; 32], Arc<Identity>>;

impl Tokens {
    pub fn read(path: PathBuf, callers: &Callers) -> Result<Self, TokensError> {
        let known = Mutex::new(Arc::new(read(&path, callers)?));
        Ok(Self { path, known })
    }

    /// Reads the file anew, and changes nothing.
    pub(super) fn reread(&self, callers: &Callers) -> Result<NewTokens, TokensError> {
        Ok(NewTokens(Arc::new(read(&self.path, callers)?)))
    }

    /// From now on these tokens count, and no others.
    pub(super) fn replace(&self, new: NewTokens) {
        *self.known.lock() = new.0;
    }

    /// Returns the number of clients.
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }

    /// Never: a file without a token is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the client of a token. The hash of a token reveals nothing of the token, so the look-up needs no
    /// constant time.
    pub(super) fn client(&self, token: &[u8; 32]) -> Option<Arc<Identity>> {
        self.known.lock().get(token).map(Arc::clone)
    }
}

pub(super) fn hash(token: &[u8]) -> [u8; 32] {
    let hash = digest(&SHA256, token);
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}

fn read(path: &Path, callers: &Callers) -> Result<KnownTokens, TokensError> {
    let wrong = |text: String| TokensError {
        path: path.to_owned(),
        text,
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("cannot be read: {}", io_reason(&error))))?;
    parse(&text, callers).map_err(wrong)
}

/// `name: sha256 [scope ..]` a line, comments and empty lines.
fn parse(text: &str, callers: &Callers) -> Result<KnownTokens, String> {
    let mut known = KnownTokens::default();
    let mut names = Vec::new();
    // Editors of Windows begin a file with this character.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (place, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let at = place.saturating_add(1);
        let (name, rest) = line
            .split_once(':')
            .ok_or_else(|| format!("line {at} is not \"name: sha256\"{}", without_name(line)))?;
        let (name, mut words) = (name.trim(), rest.split_whitespace());
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!(
                "line {at} has no name without spaces before the colon"
            ));
        }
        if names.contains(&name) {
            return Err(format!(
                "line {at} names a client that an earlier line names"
            ));
        }
        names.push(name);
        let hash = words.next().and_then(hex::decode).ok_or_else(|| {
            format!("line {at} has no SHA-256 of 64 hex digits (printf %s TOKEN | sha256sum)")
        })?;
        if let Some(wrong) = wrong_scopes(rest) {
            return Err(format!("line {at} {wrong}"));
        }
        let identity = Identity {
            // Of the name only: a client whose token is replaced keeps its tasks.
            caller: callers.of_client("token", &[name]),
            name: name_of(&[name]),
            label: Some(label_of(name)),
            scopes: words.map(Into::into).collect(),
            ends_at_ms: None,
        };
        if known.insert(hash, Arc::new(identity)).is_some() {
            return Err(format!("line {at} has the token of an earlier line"));
        }
        if known.len() > TOKENS_MAX {
            return Err(format!(
                "more than {TOKENS_MAX} tokens; use an issuer of tokens"
            ));
        }
    }
    if known.is_empty() {
        return Err("there is no token in it: nobody could call".to_owned());
    }
    Ok(known)
}

/// Advice for a line that begins with a hash.
fn without_name(line: &str) -> &'static str {
    let hash = line.split_whitespace().next().and_then(hex::decode::<32>);
    hash.map_or(
        "",
        |_| ": write who has the token and a colon before the hash",
    )
}

/// Returns the mistake in the words after the hash, which are scopes. A file name or a list with commas would be a
/// scope that no rule asks for, and the client would lack the scopes that were intended.
fn wrong_scopes(rest: &str) -> Option<&'static str> {
    let (_, scopes) = rest.trim_start().split_once(char::is_whitespace)?;
    // sha256sum writes a space, a space or an asterisk, and the name of the file or a dash.
    let name = scopes.strip_prefix([' ', '*']);
    let is_output = name.is_some_and(|name| !name.contains(char::is_whitespace));
    if is_output || scopes.trim() == "-" {
        return Some(
            "has the output of sha256sum, with the name of its file: write the hash alone, or after one space the scopes \
             of the client",
        );
    }
    let text = "has a comma after the hash: write spaces between scopes";
    scopes.contains(',').then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of "alice" and "bob".
    const ALICE: &str = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    const BOB: &str = "81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9";

    fn parsed(text: &str) -> Result<KnownTokens, String> {
        parse(text, &Callers::new(&[1; 32]))
    }

    #[test]
    fn each_line_is_a_client() {
        let text = format!(
            "\u{feff}# ours\n\nalice: {ALICE}\nbob : {} run  read # his\n",
            BOB.to_uppercase()
        );
        let known = parsed(&text).unwrap();
        let (alice, bob) = (&known[&hash(b"alice")], &known[&hash(b"bob")]);
        assert_eq!(alice.label.as_deref(), Some("alice"));
        assert!(alice.scopes.is_empty() && alice.ends_at_ms.is_none());
        assert_eq!(bob.scopes.join(","), "run,read");
        assert_ne!(alice.caller, bob.caller);
    }

    #[test]
    fn a_client_with_a_new_token_is_the_same_caller() {
        let before = parsed(&format!("ci: {ALICE}")).unwrap();
        let after = parsed(&format!("ci: {BOB}")).unwrap();
        assert_eq!(before[&hash(b"alice")].caller, after[&hash(b"bob")].caller);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_token() {
        for (text, said) in [
            (String::new(), "no token"),
            ("alice".to_owned(), "line 1 is not"),
            ("\nalice: hunter2".to_owned(), "line 2 has no SHA-256"),
            (format!("alice: {}", &ALICE[1..]), "line 1 has no SHA-256"),
            (format!("{ALICE}  -"), "write who has the token"),
            (format!("a: {ALICE}  -"), "has the output of sha256sum"),
            (format!("a: {ALICE} -"), "has the output of sha256sum"),
            (format!("a: {ALICE}  a.txt"), "has the output of sha256sum"),
            (format!("a: {ALICE} *a.txt"), "has the output of sha256sum"),
            (
                format!("b: {BOB} run\na: {ALICE} run,read"),
                "line 2 has a comma",
            ),
            (format!(": {ALICE}"), "line 1 has no name"),
            (format!("a b: {ALICE}"), "line 1 has no name"),
            (format!("a: {ALICE}\na: {BOB}"), "an earlier line names"),
            (
                format!("a: {ALICE}\nb: {ALICE}"),
                "the token of an earlier line",
            ),
        ] {
            let wrong = parsed(&text).unwrap_err();
            assert!(wrong.contains(said), "{text}: {wrong}");
            assert!(!wrong.contains("hunter2") && !wrong.contains(ALICE));
        }
    }
}
