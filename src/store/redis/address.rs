//! The store's URL: one server, the Sentinels that know it, or nodes of a cluster.
//!
//! Pure. The URLs that come out are URLs of the library, so that only the library decodes user names and passwords.

/// The servers to connect to, and how.
pub(super) enum Target {
    /// A URL of the library's own.
    Single(String),
    Sentinel {
        /// One URL for each Sentinel.
        sentinels: Vec<String>,
        /// The Sentinels' name of the primary.
        primary: String,
        at: Template,
    },
    Cluster {
        /// The first nodes to ask; they name the others.
        seeds: Vec<(String, u16)>,
        at: Template,
    },
}

/// Makes the URL of a server from an address that another server sent.
pub(super) struct Template {
    scheme: &'static str,
    /// `user:password@`, as it was written, or nothing.
    user: String,
    database: String,
}

impl Template {
    pub(super) fn url(&self, host: &str, port: u16) -> String {
        // Servers name IPv6 addresses without brackets, and a URL demands them before a port.
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let Self {
            scheme,
            user,
            database,
        } = self;
        format!("{scheme}://{user}{host}:{port}/{database}")
    }
}

impl Target {
    /// Parses a store URL. Returns `None` if it names no store.
    ///
    /// `redis-sentinel://[user:password@]host[:26379],..../name[/db][?sentinel_username=..&sentinel_password=..]`
    /// and `redis-cluster://[user:password@]host[:6379],...`; with `rediss` in front, both over TLS.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (tls, sentinel) = match scheme {
            "redis-sentinel" => (false, true),
            "rediss-sentinel" => (true, true),
            "redis-cluster" => (false, false),
            "rediss-cluster" => (true, false),
            _ => return Some(Self::Single(url.to_owned())),
        };
        let scheme = if tls { "rediss" } else { "redis" };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // No host has an @, so the last one ends the user and the password.
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts = |port| hosts.split(',').map(move |host| host_and_port(host, port));
        if sentinel {
            let (primary, database) = path.split_once('/').unwrap_or((path, ""));
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if primary.is_empty() || !primary.bytes().all(plain) {
                return None;
            }
            let asking = Template {
                scheme,
                user: sentinel_user(query)?,
                database: String::new(),
            };
            let sentinels =
                hosts(SENTINEL_PORT).map(|host| host.map(|(host, port)| asking.url(&host, port)));
            return Some(Self::Sentinel {
                sentinels: sentinels.collect::<Option<_>>()?,
                primary: primary.to_owned(),
                at: Template {
                    scheme,
                    user,
                    database: database.to_owned(),
                },
            });
        }
        // A cluster has only database 0.
        if !matches!(path, "" | "0") || !query.is_empty() {
            return None;
        }
        Some(Self::Cluster {
            seeds: hosts(PORT).collect::<Option<_>>()?,
            at: Template {
                scheme,
                user,
                database: String::new(),
            },
        })
    }
}

/// The user for the Sentinels, which have passwords of their own, or none.
fn sentinel_user(query: &str) -> Option<String> {
    let (mut name, mut password) = ("", None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=')? {
            ("sentinel_username", value) => name = value,
            ("sentinel_password", value) => password = Some(value),
            _ => return None,
        }
    }
    match password {
        Some(password) => Some(format!("{name}:{password}@")),
        None => name.is_empty().then(String::new),
    }
}

/// Parses `host`, `host:port`, `[::1]` or `[::1]:port`. The host is returned without brackets.
pub(super) fn host_and_port(text: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let port = if port.is_empty() {
                Some("")
            } else {
                port.strip_prefix(':')
            };
            (host, port)
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port? {
        "" => usual,
        port => port.parse().ok()?,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_is_the_librarys_business() {
        for url in ["redis://h", "rediss://u:p@h:1/2", "redis+unix:///s?db=1"] {
            assert!(matches!(Target::parse(url), Some(Target::Single(same)) if same == url));
        }
    }

    #[test]
    fn sentinels_are_asked_as_themselves_and_the_primary_as_the_user() {
        let url =
            "rediss-sentinel://u:p%40@a,[::1]:7/main/3?sentinel_username=s&sentinel_password=q";
        let Some(Target::Sentinel {
            sentinels,
            primary,
            at,
        }) = Target::parse(url)
        else {
            panic!("{url} was not read");
        };
        assert_eq!(
            sentinels,
            ["rediss://s:q@a:26379/", "rediss://s:q@[::1]:7/"]
        );
        assert_eq!(primary, "main");
        assert_eq!(at.url("10.0.0.1", 6379), "rediss://u:p%40@10.0.0.1:6379/3");
    }

    #[test]
    fn a_cluster_has_seeds_and_only_one_database() {
        let Some(Target::Cluster { seeds, at }) = Target::parse("redis-cluster://:p@a:1,b/0")
        else {
            panic!("the URL was not read");
        };
        assert_eq!(seeds, [("a".to_owned(), 1), ("b".to_owned(), 6379)]);
        assert_eq!(at.url("fe80::1", 5), "redis://:p@[fe80::1]:5/");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for url in [
            "localhost",
            "redis-sentinel://a",
            "redis-sentinel://a/",
            "redis-sentinel://a/na me",
            "redis-sentinel://a,/main",
            "redis-sentinel://a/main?typo=1",
            "redis-sentinel://a/main?sentinel_username=only",
            "redis-cluster://",
            "redis-cluster://a:x",
            "redis-cluster://a/1",
            "redis-cluster://[::1",
            "redis-cluster://[::1]x",
        ] {
            assert!(Target::parse(url).is_none(), "{url}");
        }
    }
}
