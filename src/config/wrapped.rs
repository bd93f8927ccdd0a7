//! Turns `[upstream]` into the wrapped server: exactly one of an address, a socket, and a program to run.

use std::path::PathBuf;

use hyper::Uri;

use super::common::{PERMITS_MAX, positive, tls};
use super::headers::{self, forwarded};
use super::port::has_right_port;
use super::problem::Problem;
use super::secret::Secret;
use super::server::{Wrapped, WrappedCommand};
use super::settings_tls::ClientTlsFiles;
use super::settings_upstream::{EraChoice, TransportChoice, UpstreamSettings};
use super::unix::Socket;
use super::{concurrency, credentials, file, query};
use crate::platform;
use crate::platform::environment::{INHERITED, is_same_variable};

pub(super) fn upstream(
    file: &file::Upstream,
    environment: &[(String, String)],
) -> Result<UpstreamSettings, Problem> {
    let server = server(file, environment)?;
    if file.transport == TransportChoice::Sse && file.era == EraChoice::Modern {
        return Err(refused(
            "transport",
            "no modern server speaks \"sse\"; take upstream.era out, or this",
        ));
    }
    if file.sessions_max == 0 || file.sessions_max > PERMITS_MAX {
        return Err(refused(
            "sessions_max",
            "must be from 1 to 1000000; the default is 256",
        ));
    }
    if file.children_max == 0 || file.children_max > PERMITS_MAX {
        return Err(refused(
            "children_max",
            "must be from 1 to 1000000; the default is 32",
        ));
    }
    positive("upstream.connect_timeout", file.connect_timeout)?;
    let concurrency = concurrency::in_all(file)?;
    // On loopback each replica has a server of its own, as in a sidecar, and a program always belongs to one
    // replica.
    let usual = matches!(server, Wrapped::Url(_)) && !server.is_local();
    let shared = file.shared.unwrap_or(usual);
    let headers = headers::of("upstream.headers", &file.headers)?;
    Ok(UpstreamSettings {
        tls: client_tls(file, &server)?,
        credentials: credentials::of_upstream(file, &server, &headers)?,
        headers,
        forward_headers: forwarded(&file.forward_headers)?,
        forward_query: query::forwarded(&file.forward_query, &server)?,
        shared,
        trust_annotations: file.trust_annotations,
        native_tasks: file.native_tasks,
        server,
        transport: file.transport,
        http2: file.http2,
        era: file.era,
        session: file.session,
        sessions_max: file.sessions_max,
        connect_timeout: file.connect_timeout,
        concurrency,
        children_max: file.children_max,
        known_file: None,
    })
}

/// Where the server is: an address, or a program.
fn server(file: &file::Upstream, environment: &[(String, String)]) -> Result<Wrapped, Problem> {
    Ok(match (file.url.as_deref(), file.command.is_empty()) {
        (None, true) => {
            return Err(refused(
                "url",
                "not set; say which server to wrap: --upstream http://127.0.0.1:8000/mcp, or its \
                 command after --",
            ));
        }
        (Some(_), false) => {
            return Err(refused(
                "command",
                "set, and upstream.url too; a server has either an address or a command; keep one",
            ));
        }
        (Some(text), true) => {
            program_only(file)?;
            if text.starts_with("unix:") && !platform::socket::ARE_FILES {
                return Err(refused(
                    "url",
                    "is a Unix socket, and this system has none that raincheck can use; let the server listen at a port of 127.0.0.1",
                ));
            }
            if text.starts_with("unix:") {
                Wrapped::Unix(Socket::parse(text).map_err(|why| refused("url", &why))?)
            } else {
                Wrapped::Url(url(text)?)
            }
        }
        (None, false) => {
            address_only(file)?;
            Wrapped::Command(command(file, environment)?)
        }
    })
}

fn client_tls(file: &file::Upstream, server: &Wrapped) -> Result<ClientTlsFiles, Problem> {
    let tls = ClientTlsFiles {
        roots: file.tls.roots.as_ref().map(PathBuf::from),
        identity: tls(
            "upstream.tls",
            file.tls.certificate.clone(),
            file.tls.key.clone(),
        )?,
    };
    let over_tls = matches!(server, Wrapped::Url(url) if url.scheme_str() == Some("https"));
    if tls != ClientTlsFiles::default() && !over_tls {
        return Err(refused(
            "tls",
            "has an effect only if upstream.url begins with \"https\"",
        ));
    }
    Ok(tls)
}

fn refused(setting: &str, text: &str) -> Problem {
    Problem::new(format!("upstream.{setting}"), text)
}

fn url(text: &str) -> Result<Uri, Problem> {
    // The URL is not quoted: people put credentials into URLs.
    let not_a_url = if platform::socket::ARE_FILES {
        "not a URL that can be wrapped; write \"http://127.0.0.1:8000/mcp\" or \"unix:/run/mcp.sock\""
    } else {
        "not a URL that can be wrapped; write \"http://127.0.0.1:8000/mcp\", or a program after --"
    };
    let url: Uri = text.parse().map_err(|_| refused("url", not_a_url))?;
    let authority = url.authority().ok_or_else(|| refused("url", not_a_url))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        return Err(refused("url", not_a_url));
    }
    if authority.as_str().contains('@') {
        return Err(refused(
            "url",
            "credentials in the URL are not used; take them out, clients send their own",
        ));
    }
    if !has_right_port(&url) {
        return Err(refused("url", "its port is not a number from 1 to 65535"));
    }
    Ok(url)
}

/// Refuses settings that only a program uses, because a setting without effect is a mistake.
fn program_only(file: &file::Upstream) -> Result<(), Problem> {
    let set = [
        ("cwd", file.cwd.is_some()),
        ("env", !file.env.is_empty()),
        ("env_allow", !file.env_allow.is_empty()),
        (
            "children_max",
            file.children_max != file::Upstream::default().children_max,
        ),
    ];
    match set.iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err(refused(
            key,
            "is for a server that raincheck runs, and this one has a URL; take it out",
        )),
        None => Ok(()),
    }
}

fn address_only(file: &file::Upstream) -> Result<(), Problem> {
    if file.transport != TransportChoice::Auto {
        return Err(refused(
            "transport",
            "is for a server with a URL, and this one is run by raincheck; take it out",
        ));
    }
    if !file.forward_headers.is_empty() {
        return Err(refused(
            "forward_headers",
            "is for a server with a URL, and this one is a command, which has no headers; take it out",
        ));
    }
    if !file.forward_query.is_empty() {
        return Err(refused(
            "forward_query",
            "is for a server with a URL, and this one is a command, which has no query; take it out",
        ));
    }
    if !file.headers.is_empty() {
        return Err(refused(
            "headers",
            "are for a server with a URL, and this one is a command; give it what it needs in \
             upstream.env",
        ));
    }
    let set = [
        ("credentials", file.credentials.is_some()),
        ("http2", file.http2),
        ("same_resource", file.same_resource),
        ("caller_header", file.caller_header.is_some()),
        (
            "sessions_max",
            file.sessions_max != file::Upstream::default().sessions_max,
        ),
        (
            "connect_timeout",
            file.connect_timeout != file::Upstream::default().connect_timeout,
        ),
    ];
    match set.iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err(refused(
            key,
            "is for a server with a URL, and this one is run by raincheck; take it out",
        )),
        None => Ok(()),
    }
}

fn command(
    file: &file::Upstream,
    environment: &[(String, String)],
) -> Result<WrappedCommand, Problem> {
    let (program, arguments) = file
        .command
        .split_first()
        .map_or(("", &[][..]), |(p, a)| (p, a));
    // A path may have spaces, so only a bare name with spaces is taken for a whole command line.
    let is_line =
        arguments.is_empty() && program.contains(' ') && !program.contains(std::path::is_separator);
    if program.is_empty() || is_line {
        return Err(refused(
            "command",
            "is a program and its arguments, which no shell takes apart; write \
             [\"npx\", \"-y\", \"some-server\"]",
        ));
    }
    // A zero byte would end the word for the kernel.
    if file.command.iter().any(|word| word.contains('\0')) {
        return Err(refused("command", "holds a zero byte"));
    }
    Ok(WrappedCommand {
        program: program.to_owned(),
        arguments: arguments.iter().map(Secret::new).collect(),
        environment: variables(file, environment)?,
        directory: file.cwd.as_ref().map(PathBuf::from),
    })
}

fn variables(
    file: &file::Upstream,
    environment: &[(String, String)],
) -> Result<Vec<(String, Secret)>, Problem> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
    for (key, mut names) in [
        (
            "env_allow",
            Box::new(file.env_allow.iter()) as Box<dyn Iterator<Item = &String>>,
        ),
        ("env", Box::new(file.env.keys())),
    ] {
        if let Some(name) = names.find(|name| !is_name(name)) {
            return Err(refused(
                key,
                &format!("{name:?} is not the name of a variable"),
            ));
        }
    }
    let allowed = |name: &str| {
        let is_it = |other: &str| is_same_variable(other, name);
        INHERITED.iter().any(|other| is_it(other)) || file.env_allow.iter().any(|it| is_it(it))
    };
    let is_set = |name: &str| file.env.keys().any(|own| is_same_variable(own, name));
    let inherited = environment.iter().filter(|(name, value)| {
        // A shell's exported functions are code.
        allowed(name) && !is_set(name) && !value.starts_with("()")
    });
    let own = file
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.0.clone()));
    Ok(inherited
        .map(|(name, value)| (name.clone(), Secret::new(value)))
        .chain(own)
        .collect())
}
