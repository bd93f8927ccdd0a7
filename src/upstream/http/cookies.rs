//! The cookies of one session or line: what a load balancer or a server sets there comes back with every later request
//! there, and with no other (RFC 6265bis).

use std::fmt;

use cookie_store::{Cookie, CookieDomain, CookieExpiration, CookieStore, RawCookie};
use hyper::HeaderMap;
use hyper::header::{COOKIE, HeaderValue, SET_COOKIE};
use url::Url;

use crate::base::lock::Mutex;

/// The number of cookies that one session may have, and the length of name and value of one together.
const COOKIES_MAX: usize = 16;
const COOKIE_BYTES_MAX: usize = 4096;

/// Whose cookie counts where the client sends one of the same name as the session has.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) enum FirstOfName {
    /// On a session of raincheck's, which is where its own cookie leads.
    Sessions,
    /// On the client's own session, whose cookies the client may know better.
    Clients,
}

/// Cookies, which are secrets as the id of the session is. Most servers set none.
#[derive(Default)]
pub(in crate::upstream) struct Cookies(Mutex<Option<Box<CookieStore>>>);

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookies")
    }
}

impl Cookies {
    /// The cookies that a response from that address sets.
    pub(in crate::upstream) fn set_by(headers: &HeaderMap, from: impl FnOnce() -> Url) -> Self {
        let cookies = Self::default();
        cookies.take_in(headers, from);
        cookies
    }

    /// Cookies that another process wrote with [`Self::lines`].
    pub(in crate::upstream) fn restored(lines: &[String], from: impl FnOnce() -> Url) -> Self {
        let cookies = Self::default();
        cookies.restore(lines, from);
        cookies
    }

    /// Takes in what another process wrote with [`Self::lines`], if nothing newer is known.
    pub(in crate::upstream) fn restore(&self, lines: &[String], from: impl FnOnce() -> Url) {
        if !lines.is_empty() && self.0.lock().is_none() {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            self.add(&lines, &from());
        }
    }

    /// Takes in what a response from that address sets.
    pub(in crate::upstream) fn take_in(&self, headers: &HeaderMap, from: impl FnOnce() -> Url) {
        if headers.contains_key(SET_COOKIE) {
            let lines = headers.get_all(SET_COOKIE).iter();
            let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
            self.add(&lines, &from());
        }
    }

    fn add(&self, lines: &[&str], from: &Url) {
        let mut cookies = self.0.lock();
        let store = cookies.get_or_insert_default();
        for line in lines {
            // A line that cannot be read sets no cookie, and must not cost the response (RFC 6265bis).
            let Ok(cookie) = RawCookie::parse(*line) else {
                continue;
            };
            let is_it =
                |known: &Cookie<'_>| known.name() == cookie.name() && known.path() == cookie.path();
            // A cookie that replaces or deletes a known one needs no room.
            let has_room = store.iter_any().count() < COOKIES_MAX || store.iter_any().any(is_it);
            if has_room && may_be_set(&cookie, from) {
                // A cookie of another domain or path is refused here.
                let _ = store.insert_raw(&cookie, from);
            }
        }
    }

    /// Writes the cookies for that address into a request, beside the client's own.
    pub(in crate::upstream) fn put(
        &self,
        headers: &mut HeaderMap,
        first: FirstOfName,
        to: impl FnOnce() -> Url,
    ) {
        let cookies = self.0.lock();
        let Some(store) = cookies.as_ref() else {
            return;
        };
        let to = to();
        let mut ours: Vec<(&str, &str)> = store.get_request_values(&to).collect();
        let clients = headers.get_all(COOKIE).iter();
        let clients = clients.filter_map(|line| line.to_str().ok());
        let clients = clients.flat_map(|line| line.split(';')).map(str::trim);
        let mut clients: Vec<&str> = clients.filter(|pair| !pair.is_empty()).collect();
        match first {
            FirstOfName::Sessions => {
                clients.retain(|pair| !ours.iter().any(|(name, _)| *name == name_of(pair)));
            }
            FirstOfName::Clients => {
                ours.retain(|(name, _)| !clients.iter().any(|pair| *name == name_of(pair)));
            }
        }
        // The client's own header then stays as it is, byte for byte.
        if ours.is_empty() {
            return;
        }
        let pairs = ours.iter().map(|(name, value)| format!("{name}={value}"));
        let pairs: Vec<String> = pairs
            .chain(clients.into_iter().map(str::to_owned))
            .collect();
        if let Ok(mut value) = HeaderValue::try_from(pairs.join("; ")) {
            // The mark keeps the value out of logs and out of the text of refusals (`SentSecrets`).
            value.set_sensitive(true);
            headers.insert(COOKIE, value);
        }
    }

    /// The cookies for another process, as `Set-Cookie` has them.
    pub(in crate::upstream) fn lines(&self) -> Vec<String> {
        let cookies = self.0.lock();
        let unexpired = cookies.iter().flat_map(|store| store.iter_unexpired());
        unexpired.map(line).collect()
    }
}

fn name_of(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

/// Returns `true` if a response from that address may set the cookie at all (RFC 6265bis, 5.7): its name may demand attributes, and
/// a secure one comes over TLS only.
fn may_be_set(cookie: &RawCookie<'_>, from: &Url) -> bool {
    let is_secure = cookie.secure() == Some(true);
    // The prefixes count in any case (RFC 6265bis), because some servers compare names without it.
    let name = cookie.name().to_ascii_lowercase();
    let is_hosts = cookie.domain().is_none() && cookie.path() == Some("/");
    name.len() + cookie.value().len() <= COOKIE_BYTES_MAX
        && (!is_secure || from.scheme() == "https")
        && (is_secure || !name.starts_with("__secure-"))
        && ((is_secure && is_hosts) || !name.starts_with("__host-"))
}

/// A cookie as it was set, with the time of its end in place of its age.
fn line(cookie: &Cookie<'static>) -> String {
    let (name, value) = cookie.name_value();
    let path: &str = &cookie.path;
    let mut line = RawCookie::build((name, value)).path(path.to_owned());
    if let CookieDomain::Suffix(domain) = &cookie.domain {
        line = line.domain(domain.clone());
    }
    // An age would begin anew in the process that reads this line.
    if let CookieExpiration::AtUtc(end) = cookie.expires {
        line = line.expires(end);
    }
    if cookie.secure() == Some(true) {
        line = line.secure(true);
    }
    line.build().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn set(lines: &[&str], from: &str) -> Cookies {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(SET_COOKIE, line.parse().unwrap());
        }
        Cookies::set_by(&headers, || url(from))
    }

    /// The cookies of a request to that address, whose client sent some of its own.
    fn sent(cookies: &Cookies, to: &str, clients: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in clients {
            headers.append(COOKIE, line.parse().unwrap());
        }
        cookies.put(&mut headers, FirstOfName::Sessions, || url(to));
        let all = headers.get_all(COOKIE).iter();
        let all: Vec<&str> = all.map(|line| line.to_str().unwrap()).collect();
        all.join(" | ")
    }

    #[test]
    fn a_cookie_goes_where_it_belongs() {
        const FROM: &str = "https://tools.example/a/mcp";
        for (line, to, expected) in [
            ("n=1", FROM, "n=1"),
            (
                "n=1; Path=/; HttpOnly; SameSite=None",
                "https://tools.example/b",
                "n=1",
            ),
            // Without a path, it is for what lies beside the endpoint.
            ("n=1", "https://tools.example/b", ""),
            ("n=1; Path=/a/mcp", "https://tools.example/a/mcp/x", "n=1"),
            ("n=1; Path=/a/mcp", "https://tools.example/a/mcpx", ""),
            ("n=1; Domain=example", FROM, "n=1"),
            ("n=1; Domain=.tools.example", FROM, "n=1"),
            ("n=1; Domain=other.example", FROM, ""),
            ("n=1; Domain=ools.example", FROM, ""),
            ("n=1; Secure; Path=/", FROM, "n=1"),
            ("n=1; Secure; Path=/", "http://tools.example/a/mcp", ""),
            ("n=1; Max-Age=60", FROM, "n=1"),
            ("n=1; Max-Age=0", FROM, ""),
            ("n=1; Max-Age=-1", FROM, ""),
            ("n=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT", FROM, ""),
            (
                "n=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT; Max-Age=60",
                FROM,
                "n=1",
            ),
            ("n=\"1\"", FROM, "n=\"1\""),
            ("n=", FROM, "n="),
            ("n", FROM, ""),
            ("__Secure-n=1; Secure", FROM, "__Secure-n=1"),
            ("__Secure-n=1", FROM, ""),
            ("__Host-n=1; Secure; Path=/", FROM, "__Host-n=1"),
            ("__Host-n=1; Secure; Path=/a", FROM, ""),
            ("__Host-n=1; Secure; Path=/; Domain=tools.example", FROM, ""),
        ] {
            assert_eq!(
                sent(&set(&[line], FROM), to, &[]),
                expected,
                "{line} to {to}"
            );
        }
        let plain = "http://127.0.0.1:8000/mcp";
        assert_eq!(sent(&set(&["n=1; Secure"], plain), plain, &[]), "");
        assert_eq!(
            sent(&set(&["n=1; Path=/; HttpOnly"], plain), plain, &[]),
            "n=1"
        );
    }

    #[test]
    fn the_newest_counts_and_stands_beside_the_client_s_own() {
        const AT: &str = "http://127.0.0.1/mcp";
        let cookies = set(&["lb=1; Path=/", "x=1; Path=/"], AT);
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, "lb=2; Path=/".parse().unwrap());
        headers.append(SET_COOKIE, "x=; Path=/; Max-Age=0".parse().unwrap());
        cookies.take_in(&headers, || url(AT));
        assert_eq!(sent(&cookies, AT, &[]), "lb=2");
        assert_eq!(
            sent(&cookies, AT, &["mine=a=b; lb=9", "too=1"]),
            "lb=2; mine=a=b; too=1"
        );
        assert_eq!(sent(&Cookies::default(), AT, &["mine=1"]), "mine=1");
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "lb=9; mine=1".parse().unwrap());
        cookies.put(&mut headers, FirstOfName::Clients, || url(AT));
        assert_eq!(headers[COOKIE], "lb=9; mine=1");
        headers.insert(COOKIE, "mine=1".parse().unwrap());
        cookies.put(&mut headers, FirstOfName::Clients, || url(AT));
        assert_eq!(headers[COOKIE], "lb=2; mine=1");
    }

    #[test]
    fn another_process_has_the_same_cookies() {
        const FROM: &str = "https://tools.example/a/mcp";
        let cookies = set(
            &[
                "a=1",
                "b=2; Path=/; Secure; Max-Age=60",
                "c=3; Domain=tools.example; Path=/a",
                "d=4; Max-Age=0",
            ],
            FROM,
        );
        let lines = cookies.lines();
        let restored = Cookies::restored(&lines, || url(FROM));
        for to in [FROM, "https://tools.example/b", "https://x.tools.example/a"] {
            let sorted = |text: String| {
                let mut pairs: Vec<_> = text.split("; ").map(str::to_owned).collect();
                pairs.sort_unstable();
                pairs
            };
            let both = [&cookies, &restored].map(|cookies| sorted(sent(cookies, to, &[])));
            assert_eq!(both[0], both[1], "{to}");
        }
        assert!(
            lines.iter().all(|line| !line.contains("Max-Age")),
            "{lines:?}"
        );
        assert_eq!(Cookies::default().lines(), [""; 0]);
    }

    #[test]
    fn there_are_few_and_none_is_large() {
        const AT: &str = "http://127.0.0.1/mcp";
        let many: Vec<String> = (0..100).map(|number| format!("n{number}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let cookies = set(&many, AT);
        assert_eq!(cookies.lines().len(), COOKIES_MAX);
        let large = format!("n={}", "x".repeat(COOKIE_BYTES_MAX));
        assert_eq!(set(&[&large], AT).lines().len(), 0);
        assert!(!format!("{cookies:?}").contains("n1"));
    }
}
