//! The text of an HTTP refusal, as clients and logs may have it: short, and without markup, control characters, internal
//! addresses and secrets. Pure.

#![expect(
    clippy::string_slice,
    reason = "every index is of a search in the same text, or behind an ASCII character"
)]

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::base::printable::is_printable;
use crate::mcp::json::Object;
use crate::upstream::http::markup::without_markup;

/// The number of characters that are shown.
const CHARS_MAX: usize = 200;

/// The number of bytes of the plain text that are looked at.
const LOOKED_AT: usize = 4 * 1024;

/// A shorter value that was sent is too common to be taken out wherever it stands.
const SENT_BYTES_MIN: usize = 4;

const SECRET: &str = "[...]";
const ADDRESS: &str = "[address]";

/// The beginning of the text, fit to be shown. `sent`: values of the request that must not come back.
pub(in crate::upstream) fn shown(text: &str, sent: &[&str]) -> String {
    let plain = said_in_json(text).unwrap_or_else(|| without_markup(text));
    let unreadable = plain.chars().filter(|c| *c == '\u{fffd}').count();
    if unreadable * 10 > plain.len() {
        return String::new();
    }
    let mut plain = plain;
    for value in sent {
        // Servers repeat the whole header, or its token alone.
        for part in [*value, value.rsplit(' ').next().unwrap_or_default()] {
            if part.len() >= SENT_BYTES_MIN && plain.contains(part) {
                plain = plain.replace(part, SECRET);
            }
        }
    }
    let cut = plain.floor_char_boundary(LOOKED_AT);
    let whole = if cut < plain.len() {
        // The last word may be a part of a secret.
        plain[..cut].rsplit_once(' ').map_or("", |(whole, _)| whole)
    } else {
        &plain
    };
    let words = Redaction::of(&visible(whole));
    let spaced: Vec<&str> = words.split_whitespace().collect();
    spaced.join(" ").chars().take(CHARS_MAX).collect()
}

/// Returns the message of a JSON text, by the names that servers and gateways use. `None`: it is no JSON object, or says nothing
/// under them.
fn said_in_json(text: &str) -> Option<String> {
    let object = Object::parse(text).ok()?;
    let nested = object.get_object("error");
    let inner = nested.as_ref().unwrap_or(&object);
    let names = [
        "error",
        "title",
        "error_description",
        "message",
        "detail",
        "reason",
    ];
    let mut said: Vec<String> = Vec::new();
    for name in names {
        if let Some(text) = inner.get_str(name).map(Cow::into_owned)
            && !text.is_empty()
            && !said.contains(&text)
        {
            said.push(text);
        }
    }
    (!said.is_empty()).then(|| without_markup(&said.join(": ")))
}

/// The text without characters that change how the rest is shown, on one line.
fn visible(text: &str) -> String {
    let is_hidden = |c: &char| {
        matches!(
            c,
            '\u{ad}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
    };
    let seen = text.chars().filter(|c| !is_hidden(c));
    seen.map(|c| {
        if !is_printable(c) || c == '<' || c == '>' {
            ' '
        } else {
            c
        }
    })
    .collect()
}

/// Writes a text anew, word by word, without its secrets and internal addresses.
struct Redaction {
    out: String,
    /// The meaning of the words before for the next one.
    before: Before,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The name of a secret: its value follows after ":" or "=".
    Name,
    /// The next word is a secret.
    Value,
    /// A scheme of credentials: a token may follow, or another word.
    Scheme,
    /// The next words are cookies.
    Cookies,
}

impl Redaction {
    fn of(text: &str) -> String {
        let mut redaction = Self {
            out: String::with_capacity(text.len()),
            before: Before::Nothing,
        };
        let mut rest = text;
        while let Some(start) = rest.find(|c| !is_separator(c)) {
            redaction.out.push_str(&rest[..start]);
            rest = &rest[start..];
            let end = rest.find(is_separator).unwrap_or(rest.len());
            redaction.word(&rest[..end], rest[end..].starts_with(';'));
            rest = &rest[end..];
        }
        redaction.out.push_str(rest);
        redaction.out
    }

    fn word(&mut self, word: &str, ends_with_semicolon: bool) {
        let is_sign = matches!(word, ":" | "=" | ":=");
        match self.before {
            Before::Name if is_sign => {
                self.before = Before::Value;
                return self.out.push_str(word);
            }
            Before::Value | Before::Cookies if is_scheme(word) => {
                self.before = Before::Value;
                return self.out.push_str(word);
            }
            Before::Value if !is_sign => return self.secret(Before::Nothing),
            Before::Cookies => {
                return self.secret(if ends_with_semicolon {
                    Before::Cookies
                } else {
                    Before::Nothing
                });
            }
            Before::Scheme if !is_about_credentials(word) => {
                return self.secret(Before::Nothing);
            }
            Before::Nothing | Before::Name | Before::Value | Before::Scheme => {}
        }
        let split = word.find(['=', ':']).filter(|_| !word.contains("://"));
        let (name, value) = split.map_or((word, ""), |at| (&word[..at], &word[at + 1..]));
        if names_a_secret(name) && (split.is_some() || is_bare_name(name)) {
            if value.is_empty() {
                self.out.push_str(word);
                self.before = match split {
                    Some(_) if name.to_ascii_lowercase().ends_with("cookie") => Before::Cookies,
                    Some(_) => Before::Value,
                    None => Before::Name,
                };
            } else {
                self.out.push_str(&word[..=name.len()]);
                self.secret(Before::Nothing);
            }
            return;
        }
        self.before = if is_scheme(word) {
            Before::Scheme
        } else {
            Before::Nothing
        };
        let bare = word.trim_end_matches(['.', ':', '!', '?']);
        match redacted(bare) {
            Some(shown) => {
                self.out.push_str(&shown);
                self.out.push_str(&word[bare.len()..]);
            }
            None => self.out.push_str(word),
        }
    }

    fn secret(&mut self, before: Before) {
        self.out.push_str(SECRET);
        self.before = before;
    }
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || "\"'`,;{}[]()|\\".contains(c)
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "digest"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Words that stand after the name of a scheme and are no secrets.
fn is_about_credentials(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ':', '!', '?']);
    let word = word.to_ascii_lowercase();
    names_a_secret(&word)
        || [
            "access", "error", "expired", "is", "invalid", "missing", "must", "realm", "required",
            "scheme", "scope", "was",
        ]
        .iter()
        .any(|known| word == *known || word.starts_with(&format!("{known}=")))
}

/// True for a name such as "`api_key`" or "session-id".
fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_'], "");
    let parts = [
        "token",
        "secret",
        "passw",
        "pwd",
        "apikey",
        "authoriz",
        "cookie",
        "session",
        "credential",
        "signature",
        "jwt",
    ];
    name == "key" || name == "sig" || name == "auth" || parts.iter().any(|part| name.contains(part))
}

/// True for a word that may stand before a sign and a value, as in `token = x`.
fn is_bare_name(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_ascii_alphabetic() || c == '-' || c == '_')
        && word.len() < 24
}

/// The text in place of a word that must not be shown.
fn redacted(word: &str) -> Option<Cow<'static, str>> {
    if word.contains("://") {
        return Some(public_url(word).map_or_else(|| ADDRESS.into(), Into::into));
    }
    let host = word.split(['/', '?', '#']).next().unwrap_or_default();
    if is_internal(host) || is_host_and_port(host) {
        return Some(ADDRESS.into());
    }
    is_like_a_secret(word).then(|| SECRET.into())
}

/// A URL without its query, if it leads to a name of the public internet.
fn public_url(word: &str) -> Option<String> {
    let url = Url::parse(word).ok()?;
    let Some(Host::Domain(host)) = url.host() else {
        return None;
    };
    let is_public = host.contains('.')
        && !is_internal(host)
        && url.port().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && matches!(url.scheme(), "http" | "https")
        && !url.path().split('/').any(is_like_a_secret);
    is_public.then(|| format!("{}://{host}{}", url.scheme(), url.path()))
}

fn is_internal(host: &str) -> bool {
    const ENDINGS: [&str; 10] = [
        ".arpa",
        ".consul",
        ".corp",
        ".internal",
        ".intranet",
        ".lan",
        ".local",
        ".localdomain",
        ".private",
        ".svc",
    ];
    let host = host.to_ascii_lowercase();
    host == "localhost"
        || host.parse::<Ipv4Addr>().is_ok()
        || (host.contains("::") || host.matches(':').count() == 7)
            && host.parse::<Ipv6Addr>().is_ok()
        || ENDINGS.iter().any(|ending| host.ends_with(ending))
}

fn is_host_and_port(word: &str) -> bool {
    let Some((host, port)) = word.rsplit_once(':') else {
        return false;
    };
    let is_port = (2..=5).contains(&port.len()) && port.bytes().all(|c| c.is_ascii_digit());
    let is_host = host
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || c == b'.' || c == b'-' || c == b'_');
    let has_name =
        host.bytes().any(|c| c.is_ascii_alphabetic()) || host.parse::<Ipv4Addr>().is_ok();
    is_port && is_host && has_name
}

/// The beginnings of well-known kinds of tokens.
const BEGINNINGS: [&str; 13] = [
    "AIza",
    "AKIA",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "pk-",
    "sk-",
    "xox",
    "ya29.",
];

/// True for a word with a long run of characters as in base64, in hexadecimal numbers and in ids.
fn is_like_a_secret(word: &str) -> bool {
    let is_known = |part: &str| {
        BEGINNINGS.iter().any(|begin| part.starts_with(begin)) && part.len() >= begin_length(part)
    };
    let is_in_run = |c: char| c.is_ascii_alphanumeric() || "+/_=~-%".contains(c);
    let mut runs = word.split(|c| !is_in_run(c));
    is_known(word) || runs.any(|run| is_known(run) || is_random(run))
}

fn begin_length(part: &str) -> usize {
    // "sk-" and "xox" begin short words, too.
    if part.starts_with("eyJ") { 10 } else { 8 }
}

fn is_random(run: &str) -> bool {
    let has = |is: fn(&u8) -> bool| run.as_bytes().iter().any(is);
    let (digit, upper, lower) = (
        has(u8::is_ascii_digit),
        has(u8::is_ascii_uppercase),
        has(u8::is_ascii_lowercase),
    );
    let is_hex = run.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-');
    match run.len() {
        0..12 => false,
        _ if run.ends_with('=') && !run[..run.len() - 2].contains('=') => true,
        12..16 => false,
        _ if is_hex && digit => true,
        _ if digit && upper && lower => true,
        16..24 => false,
        24..40 => digit && (upper || lower),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gateway_says_is_shown_without_its_markup() {
        for (text, expected) in [
            ("", ""),
            ("request body too large", "request body too large"),
            (
                "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>\r\n<center><h1>413 \
                 Request Entity Too Large</h1></center>\r\n<hr><center>nginx/1.25.3</center>\r\n</body>\r\n</html>",
                "413 Request Entity Too Large nginx/1.25.3",
            ),
            (
                "<!DOCTYPE html><html><head><style>a{b:c}</style><script>var x='<b>'</script></head><body><p>Bad \
                 &lt;b&gt;gateway&lt;/b&gt; &amp; more",
                "Bad b gateway /b & more",
            ),
            ("a < b and c > d", "a b and c d"),
            (
                "no\u{7}t\u{202e} \u{1b}[31mhere\r\n\tnow",
                "no t [31mhere now",
            ),
            (
                r#"{"error":"invalid_request","error_description":"Missing x"}"#,
                "invalid_request: Missing x",
            ),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (
                r#"{"error":{"message":"Quota is used up","status":"X"}}"#,
                "Quota is used up",
            ),
            (r#"{"ok":false}"#, r#"{"ok":false}"#),
            (
                "see https://docs.example.com/limits?u=1.",
                "see https://docs.example.com/limits.",
            ),
            (
                "Bad Request: No valid session ID provided",
                "Bad Request: No valid session ID provided",
            ),
            (
                "MCP-Protocol-Version 2025-11-25 is not application/json",
                "MCP-Protocol-Version 2025-11-25 is not application/json",
            ),
            ("Bearer token required", "Bearer token required"),
            (
                "2026-11-26T06:59:01.423244Z line 12:30",
                "2026-11-26T06:59:01.423244Z line 12:30",
            ),
        ] {
            assert_eq!(shown(text, &[]), expected, "{text}");
        }
        assert_eq!(shown(&"ab ".repeat(2000), &[]).chars().count(), 200);
        assert_eq!(shown(&"\u{fffd}a".repeat(50), &[]), "");
    }

    #[test]
    fn no_secret_and_no_internal_address_is_shown() {
        for text in [
            "bad token: s3cret",
            "bad token = s3cret!",
            r#"{"ok":false,"access_token":"s3cret"}"#,
            r#"{"message":"bad api_key=s3cret"}"#,
            "Authorization: Bearer s3cret",
            "got Bearer s3cret",
            "Cookie: a=s3cret; b=s3cret",
            "Set-Cookie: sid=s3cret",
            "password=s3cret&x",
            "X-Api-Key: s3cret",
            "<input name=a value=s3cret>",
            "<p>token:<b>s3cret</b></p>",
        ] {
            let text = shown(text, &[]);
            assert!(!text.contains("s3cret"), "{text}");
        }
        for secret in [
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "0123456789abcdef0123",
            "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
            "dXNlcjpwYXNzd29yZA==",
            "sk-live12345",
            "ghp_abcdefghijkl",
            "AbCdEfGh12345678",
        ] {
            assert_eq!(
                shown(&format!("no {secret}, sorry"), &[]),
                "no [...], sorry"
            );
        }
        for address in [
            "10.0.0.7",
            "192.168.1.1:8080",
            "fe80::1",
            "localhost",
            "backend:8080",
            "api.prod.svc.cluster.local",
            "http://10.1.2.3/x",
            "https://user:pass@example.com/",
            "http://backend/mcp",
            "http://db.internal",
            "203.0.113.9",
        ] {
            assert_eq!(
                shown(&format!("from {address}, sorry"), &[]),
                "from [address], sorry"
            );
        }
    }

    #[test]
    fn what_was_sent_does_not_come_back() {
        let sent = ["Bearer hunter", "a=plain; b=other", "abc"];
        let text = "hunter is no token, nor is &#104;unter, a=plain; b=other, nor abc";
        assert_eq!(
            shown(text, &sent),
            "[...] is no token, nor is [...], [...], nor abc"
        );
        // Neither does a part of it at the end of what is looked at.
        let long = format!("{} topsecretvalue", "x".repeat(LOOKED_AT - 8));
        assert!(!shown(&long, &["topsecretvalue"]).contains("top"));
    }
}
