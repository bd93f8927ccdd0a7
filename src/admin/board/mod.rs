//! The board: a page for operators, embedded in the program. It has no secrets, so it needs no token: its script asks for
//! the token and sends it with each request for data.

use hyper::Response;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use super::listener::{AdminBody, whole};

/// The content security policy of the page: the page may load its own files and send requests to this listener, and
/// nothing else. No string becomes HTML or script, because the browser refuses it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";

/// A file of the page, as it is in the program.
#[derive(PartialEq, Eq)]
pub(super) struct BoardFile {
    name: &'static str,
    media_type: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($name:literal $media_type:ident)*) => {
        [$(BoardFile {
            name: $name,
            media_type: $media_type,
            text: include_str!(concat!("page/", $name)),
        }),*]
    };
}

/// The page itself is the first.
static FILES: [BoardFile; 15] = files! {
    "board.html" HTML
    "board.css" STYLE
    "icon.svg" ICON
    "api.js" SCRIPT
    "ask.js" SCRIPT
    "board.js" SCRIPT
    "chosen.js" SCRIPT
    "dom.js" SCRIPT
    "list.js" SCRIPT
    "pauses.js" SCRIPT
    "place.js" SCRIPT
    "question.js" SCRIPT
    "stats.js" SCRIPT
    "task.js" SCRIPT
    "words.js" SCRIPT
};

impl BoardFile {
    pub(super) fn page() -> &'static Self {
        &FILES[0]
    }

    /// The file that the page names so.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        FILES[1..].iter().find(|file| file.name == name)
    }

    pub(super) fn answer(&self) -> Response<AdminBody> {
        let mut response = Response::new(whole(self.text));
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, self.media_type),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            // Another version of raincheck has another page.
            (CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl std::fmt::Debug for BoardFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names that follow `before` in a text, up to a quote.
    fn named_in(text: &str, before: &str) -> Vec<String> {
        let parts = text.split(before).skip(1);
        let names = parts.filter_map(|rest| rest.split('"').next());
        names.map(ToOwned::to_owned).collect()
    }

    #[test]
    fn every_file_is_named_by_another_and_every_name_is_a_file() {
        let page = BoardFile::page().text;
        let mut named: BTreeSet<String> = named_in(page, "=\"board/").into_iter().collect();
        for file in &FILES {
            named.extend(named_in(file.text, "from \"./"));
        }
        let there: BTreeSet<String> = FILES[1..].iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(named, there);
        assert!(
            BoardFile::named("board.html").is_none(),
            "it has a path of its own"
        );
    }

    #[test]
    fn the_page_asks_nothing_elsewhere_and_makes_no_html() {
        for file in &FILES {
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            for wrong in [
                "http://",
                "https://",
                "innerHTML",
                "insertAdjacentHTML",
                "eval(",
                "style=\"",
                "localStorage",
            ] {
                assert!(!text.contains(wrong), "{} has {wrong}", file.name);
            }
        }
        assert!(!POLICY.contains("unsafe"));
    }
}
