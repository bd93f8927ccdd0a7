//! The address by which clients know raincheck, and what follows from it: the metadata of the protected resource (RFC 9728).
//! Pure.

use hyper::header::HeaderValue;

use crate::mcp::json::{Object, Writer, quote, set};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The address by which clients know raincheck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicAddress {
    /// As the operator writes it: the resource that tokens are for.
    pub resource: Box<str>,
    /// The path in it; empty without one.
    pub path: Box<str>,
    /// Where clients find the metadata of this resource.
    pub metadata: Box<str>,
}

/// The address by which clients know raincheck, and the metadata that they find there.
#[derive(Debug, Clone)]
pub struct ResourceMetadata {
    pub public: PublicAddress,
    /// Whose tokens count. Empty: the wrapped server may have metadata of its own.
    pub issuers: Box<[Box<str>]>,
}

impl ResourceMetadata {
    /// raincheck's own metadata. `scopes`: all that a call may need.
    pub fn document<'a>(&'a self, scopes: impl Iterator<Item = &'a str>) -> String {
        let issuers = self.issuers.iter().map(AsRef::as_ref);
        self.public.document(issuers, scopes)
    }
}

impl PublicAddress {
    /// Of an origin and a path, which is empty or starts with `/`.
    pub fn new(origin: &str, path: &str) -> Self {
        // The path comes behind the well-known one, but for a lone slash (RFC 9728, section 3.1).
        let behind = if path == "/" { "" } else { path };
        Self {
            resource: format!("{origin}{path}").into(),
            path: behind.into(),
            metadata: format!("{origin}{WELL_KNOWN}{behind}").into(),
        }
    }

    /// The metadata of a raincheck that takes the tokens of these issuers.
    pub fn document<'a>(
        &self,
        issuers: impl Iterator<Item = &'a str>,
        scopes: impl Iterator<Item = &'a str>,
    ) -> String {
        let list = |texts: &mut dyn Iterator<Item = &'a str>| {
            let quoted: Vec<String> = texts.map(quote).collect();
            format!("[{}]", quoted.join(","))
        };
        let (mut issuers, mut scopes) = (issuers, scopes.peekable());
        let mut out = Writer::object();
        out.str("resource", &self.resource)
            .raw("authorization_servers", &list(&mut issuers));
        if scopes.peek().is_some() {
            out.raw("scopes_supported", &list(&mut scopes));
        }
        out.raw("bearer_methods_supported", r#"["header"]"#);
        out.end()
    }

    /// The metadata that the wrapped server gives, for this resource. `None`: they cannot be read.
    pub fn rewritten_document(&self, theirs: &str) -> Option<String> {
        // Of two members of the name, a client may take the other one.
        if Object::parse(theirs).ok()?.is_ambiguous(&["resource"]) {
            return None;
        }
        set(theirs, "resource", &quote(&self.resource)).ok()
    }

    /// A challenge of the wrapped server, with our metadata in place of its own. `None`: it names none.
    pub fn rewritten_challenge(&self, theirs: &HeaderValue) -> Option<HeaderValue> {
        let text = theirs.to_str().ok()?;
        let rewritten = replace_parameter(text, "resource_metadata", &self.metadata)?;
        HeaderValue::from_str(&rewritten).ok()
    }
}

/// Replaces the value of each parameter of that name, wherever it stands outside of quotes.
fn replace_parameter(text: &str, name: &str, value: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + value.len());
    let (mut rest, mut is_found) = (text, false);
    while let Some(first) = rest.chars().next() {
        // Inside of quotes the name is a part of another parameter's value.
        if first == '"' {
            let (quoted, after) = rest.split_at(end_of_quoted(rest));
            out.push_str(quoted);
            rest = after;
            continue;
        }
        let word_end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        if word_end == 0 {
            out.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        let (word, after) = rest.split_at(word_end);
        out.push_str(word);
        rest = after;
        let given = after.trim_start_matches([' ', '\t']).strip_prefix('=');
        if let Some(given) = given.filter(|_| word.eq_ignore_ascii_case(name)) {
            let given = given.trim_start_matches([' ', '\t']);
            let end = if given.starts_with('"') {
                end_of_quoted(given)
            } else {
                given.find([',', ' ', '\t']).unwrap_or(given.len())
            };
            out.push_str("=\"");
            out.push_str(value);
            out.push('"');
            rest = given.get(end..).unwrap_or_default();
            is_found = true;
        }
    }
    is_found.then_some(out)
}

/// The length of the quoted text at the beginning, its quotes included.
fn end_of_quoted(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public() -> PublicAddress {
        PublicAddress::new("https://tools.example", "/mcp")
    }

    #[test]
    fn the_metadata_are_where_clients_look_for_them() {
        for (path, resource, metadata) in [
            (
                "/mcp",
                "https://tools.example/mcp",
                "https://tools.example/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "/a/b",
                "https://tools.example/a/b",
                "https://tools.example/.well-known/oauth-protected-resource/a/b",
            ),
            (
                "",
                "https://tools.example",
                "https://tools.example/.well-known/oauth-protected-resource",
            ),
            (
                "/",
                "https://tools.example/",
                "https://tools.example/.well-known/oauth-protected-resource",
            ),
        ] {
            let public = PublicAddress::new("https://tools.example", path);
            assert_eq!((&*public.resource, &*public.metadata), (resource, metadata));
        }
    }

    #[test]
    fn the_document_names_issuers_and_scopes() {
        let issuers = ["https://login.example"].into_iter();
        assert_eq!(
            public().document(issuers.clone(), ["read", "run"].into_iter()),
            r#"{"resource":"https://tools.example/mcp","authorization_servers":["https://login.example"],"scopes_supported":["read","run"],"bearer_methods_supported":["header"]}"#
        );
        let plain = public().document(issuers, std::iter::empty());
        assert!(!plain.contains("scopes"), "{plain}");
    }

    #[test]
    fn the_servers_own_document_is_about_us() {
        let theirs = r#"{"resource":"http://127.0.0.1:8000/mcp","authorization_servers":["https://login.example"]}"#;
        let ours = public().rewritten_document(theirs).unwrap();
        assert!(
            ours.contains(r#""resource":"https://tools.example/mcp""#),
            "{ours}"
        );
        assert!(
            ours.contains("https://login.example") && !ours.contains("127.0.0.1"),
            "{ours}"
        );
        assert_eq!(public().rewritten_document("<html>"), None);
        assert_eq!(public().rewritten_document("[]"), None);
        assert_eq!(
            public().rewritten_document(r#"{"resource":"a","Resource":"b"}"#),
            None
        );
    }

    #[test]
    fn a_challenge_never_leads_to_the_server_itself() {
        let ours =
            "resource_metadata=\"https://tools.example/.well-known/oauth-protected-resource/mcp\"";
        let here = "http://127.0.0.1:8000/.well-known/oauth-protected-resource";
        for (theirs, expected) in [
            (
                format!("Bearer resource_metadata=\"{here}\""),
                format!("Bearer {ours}"),
            ),
            (
                format!("Bearer scope=\"a b\", Resource_Metadata = \"{here}\", error=\"x\""),
                format!(
                    "Bearer scope=\"a b\", {}, error=\"x\"",
                    ours.replace("resource_metadata", "Resource_Metadata")
                ),
            ),
            (
                format!("Bearer resource_metadata={here},error=x"),
                format!("Bearer {ours},error=x"),
            ),
            (
                format!(
                    "Bearer realm=\"a \\\" resource_metadata=b\", resource_metadata=\"{here}\""
                ),
                format!("Bearer realm=\"a \\\" resource_metadata=b\", {ours}"),
            ),
            (
                format!("Basic realm=\"x\", Bearer resource_metadata=\"{here}"),
                format!("Basic realm=\"x\", Bearer {ours}"),
            ),
        ] {
            let rewritten = public()
                .rewritten_challenge(&theirs.parse().unwrap())
                .unwrap();
            assert_eq!(rewritten, expected, "{theirs}");
        }
        for other in [
            "Bearer",
            "Bearer realm=\"resource_metadata=x\"",
            "Basic realm=x",
            "Bearer resource_metadata2=x",
        ] {
            assert_eq!(
                public().rewritten_challenge(&other.parse().unwrap()),
                None,
                "{other}"
            );
        }
    }
}
