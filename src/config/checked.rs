//! Turns what the user wrote into what the program runs on, section by section.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use ipnet::IpNet;

use super::common::tls;
use super::host::Host;
use super::log_format::LogFormat;
use super::problem::Problem;
use super::scalar::words;
use super::server::Wrapped;
use super::settings::{
    AdminSettings, Config, DrainSettings, HistorySettings, LimitSettings, ListenSettings,
    ReplicaSettings,
};
use super::settings_store::{Location, Seal};
use super::settings_upstream::{
    CredentialUse, EraChoice, NativeTasks, SessionUse, TransportChoice, UpstreamSettings,
};
use super::source::Source;
use super::tokens::{self, check_token};
use super::trace_protocol::TraceProtocol;
use super::{
    auth, companion, credentials, events, file, ignored, jobs, notify, public, rules, store,
    telemetry, unused, wrapped,
};

impl Config {
    pub(super) fn check(
        file: file::File,
        host: &Host,
        environment: &[(String, String)],
        for_one_client: bool,
    ) -> Result<Self, Problem> {
        // Read before the sections are moved out of the file.
        let mut unused = unused::settings(&file);
        let for_traces = unused::of_traces(&file.telemetry.traces);
        let listen = ListenSettings::try_from(file.listen)?;
        let mut upstream = wrapped::upstream(&file.upstream, environment)?;
        upstream.known_file = known_file(&upstream, host);
        let admin = admin(file.admin, &listen)?;
        let usual = || {
            if for_one_client {
                return Some(usual_slots(&upstream, host));
            }
            usual_file(&listen, &upstream, host).map(Location::Embedded)
        };
        let jobs = jobs::jobs(file.jobs)?;
        let rules = rules::rules(&file.tasks, file.tools)?
            .within(upstream.concurrency)
            .with_jobs(jobs);
        let auth = auth::auth(file.auth, &listen)?;
        // The one client of a pipe is never asked.
        if !for_one_client {
            rules::scopes_can_be_had(&rules, &auth)?;
        }
        let replica = replica(file.replica, host)?;
        credentials::fit(&auth, &upstream, !for_one_client)?;
        let telemetry = telemetry::telemetry(file.telemetry, environment, &replica)?;
        // The variables of OpenTelemetry may name a collector, and then these settings have an effect.
        unused.extend(for_traces.filter(|_| telemetry.traces.is_none()));
        unused.extend(events::unused(&file.events, for_one_client));
        let events = events::events(&file.events, &auth, &admin, for_one_client)?;
        Ok(Self {
            store: store::store(file.store, usual)?,
            companion: companion::companion(&file.tasks, for_one_client)?,
            rules,
            drain: drain(file.drain, &admin)?,
            history: history(&file.history, &admin)?,
            admin,
            auth,
            limits: LimitSettings::try_from(file.limits)?,
            notify: notify::receivers(file.notify)?,
            events,
            telemetry,
            replica,
            listen,
            upstream,
            unused,
            shown: Arc::default(),
            fingerprints: Arc::default(),
            source: Source::default(),
            ignored: ignored::variables(environment),
        })
    }
}

impl TryFrom<file::Listen> for ListenSettings {
    type Error = Problem;

    fn try_from(file: file::Listen) -> Result<Self, Problem> {
        let refused = |setting: &str, text: String| Problem::new(format!("listen.{setting}"), text);
        let address = address(&file.address).ok_or_else(|| {
            refused(
                "address",
                format!(
                    "{:?} is not an address with a port; write \"127.0.0.1:8440\"",
                    file.address
                ),
            )
        })?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
        // Clients take such parts out of a URL before they send it.
        let has_dots = file.path.split('/').any(|part| part == "." || part == "..");
        if !file.path.starts_with('/') || !file.path.chars().all(plain) || has_dots {
            let text = format!("{:?} is not a plain path; write \"/mcp\"", file.path);
            return Err(refused("path", text));
        }
        if file.path.starts_with("/.well-known") {
            let text = "/.well-known belongs to the wrapped server; write \"/mcp\"".to_owned();
            return Err(refused("path", text));
        }
        for host in &file.allowed_hosts {
            // The port is not compared: a browser cannot be made to lie about only that.
            let is_name = host.parse::<IpAddr>().is_ok()
                || !host.contains(|c: char| c.is_whitespace() || ":/*@".contains(c));
            if host.is_empty() || !is_name {
                let text = format!(
                    "{host:?} is not a host name; write \"tools.example.com\", without a port"
                );
                return Err(refused("allowed_hosts", text));
            }
        }
        for origin in &file.allowed_origins {
            let bare = |rest: &str| !rest.is_empty() && !rest.contains(['/', '*', '@']);
            if !origin.split_once("://").is_some_and(|(_, rest)| bare(rest)) {
                let text = format!(
                    "{origin:?} is not an origin; write \"https://app.example.com\", without a path"
                );
                return Err(refused("allowed_origins", text));
            }
        }
        let lower = |list: Vec<String>| -> Vec<String> {
            list.iter().map(|text| text.to_lowercase()).collect()
        };
        let mut allowed_hosts = lower(file.allowed_hosts);
        let mut public_url = None;
        if let Some(written) = &file.public_url {
            let (address, host) = public::address(written)?;
            public_url = Some(address);
            // Clients write this host, so it need not be named twice.
            if !allowed_hosts.contains(&host) {
                allowed_hosts.push(host);
            }
        }
        Ok(Self {
            address,
            path: file.path,
            public_url,
            h2c: file.h2c,
            allowed_hosts,
            allowed_origins: lower(file.allowed_origins),
            trusted_proxies: trusted(&file.trusted_proxies)?,
            tls: tls("listen.tls", file.tls.certificate, file.tls.key)?,
        })
    }
}

/// Reads addresses and networks.
fn trusted(written: &[String]) -> Result<Vec<IpNet>, Problem> {
    let parsed = written.iter().map(|text| {
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
            let text = format!(
                "{text:?} is neither an address nor a network; write \"10.0.0.7\" or \"10.0.0.0/8\""
            );
            Problem::new("listen.trusted_proxies", text)
        })
    });
    parsed.collect()
}

/// Reads an address to listen on. Host names are not resolved, because the listen address must not depend on
/// a name server.
fn address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into());
    }
    text.parse().ok()
}

/// The default store file: one for each pair of upstream and listen address, so that two rainchecks on one
/// laptop do not share a file.
fn usual_file(
    listen: &ListenSettings,
    upstream: &UpstreamSettings,
    host: &Host,
) -> Option<PathBuf> {
    let text = format!("{} {}", upstream.server.identity(), listen.address);
    state_file(&text, host)
}

/// The default store files of `raincheck stdio`, for each pair of upstream and working directory: a client
/// that is started again in its project finds the tasks of that project.
fn usual_slots(upstream: &UpstreamSettings, host: &Host) -> Location {
    let directory = host
        .working_directory
        .as_deref()
        .unwrap_or_else(|| Path::new(""));
    let text = format!(
        "{} stdio {}",
        upstream.server.identity(),
        directory.display()
    );
    state_file(&text, host).map_or(Location::Memory, Location::Slots)
}

fn state_file(text: &str, host: &Host) -> Option<PathBuf> {
    let hash = digest(&SHA256, text.as_bytes());
    let name = u64::from_be_bytes(*hash.as_ref().first_chunk()?);
    let directory: &Path = host.state_directory.as_deref()?;
    Some(
        directory
            .join("raincheck")
            .join(format!("{name:016x}.redb")),
    )
}

/// Returns the file of the known facts about the server: one for each server and its headers and environment, because
/// a server may respond differently to different accounts.
fn known_file(upstream: &UpstreamSettings, host: &Host) -> Option<PathBuf> {
    let mut text = upstream.server.identity();
    let mut add = |word: &str| {
        // No word holds a zero byte, so two lists of words never give one text.
        text.push('\0');
        text.push_str(word);
    };
    for header in &upstream.headers {
        add(header.name.as_str());
        add(header.value.expose());
    }
    if let Wrapped::Command(command) = &upstream.server {
        if let Some(directory) = &command.directory {
            add(&directory.to_string_lossy());
        }
        // These variables differ between terminal windows.
        let lasting = command
            .environment
            .iter()
            .filter(|(name, _)| name != "TERM");
        for (name, value) in lasting {
            add(name);
            add(value.expose());
        }
    }
    let hash = digest(&SHA256, text.as_bytes());
    let name = u64::from_be_bytes(*hash.as_ref().first_chunk()?);
    let directory: &Path = host.state_directory.as_deref()?;
    let file = format!("{name:016x}.known.json");
    Some(directory.join("raincheck").join(file))
}

fn replica(file: file::Replica, host: &Host) -> Result<ReplicaSettings, Problem> {
    if file.lease < LEASE_MIN {
        return Err(Problem::new(
            "replica.lease",
            "is renewed once a second; the shortest that survives a hiccup is \"3s\"",
        ));
    }
    let id = file
        .id
        .or_else(|| host.name.clone())
        .unwrap_or_else(|| "raincheck".into());
    // A slash would end the name within an incarnation.
    if id.is_empty() || id.len() > 253 || id.contains(|c: char| c == '/' || !c.is_ascii_graphic()) {
        return Err(Problem::new(
            "replica.id",
            "write a name without spaces and slashes, such as \"web-0\"",
        ));
    }
    Ok(ReplicaSettings {
        id,
        lease: file.lease,
    })
}

/// Examples of addresses of the admin section, for errors.
const PROBES: &str = "0.0.0.0:8441";
const OPERATORS: &str = "127.0.0.1:8442";

fn admin(file: file::Admin, clients: &ListenSettings) -> Result<AdminSettings, Problem> {
    let probes = admin_address("admin.probes", file.probes, PROBES)?;
    let listen = admin_address("admin.listen", file.listen, OPERATORS)?;
    let ports = [
        ("listen.address", Some(clients.address), ""),
        ("admin.probes", probes, PROBES),
        ("admin.listen", listen, OPERATORS),
    ];
    for (at, (setting, address, example)) in ports.iter().enumerate().skip(1) {
        let same = |other: &&(&str, Option<SocketAddr>, &str)| {
            // Only ports are compared, because 0.0.0.0 takes a port at every address. For port 0 the system chooses a
            // free one.
            let both = other.1.zip(*address);
            both.is_some_and(|(one, two)| one.port() != 0 && one.port() == two.port())
        };
        if let Some((other, ..)) = ports.iter().take(at).find(same) {
            let text = format!("has the port of {other}; write another one, such as \"{example}\"");
            return Err(Problem::new(*setting, text));
        }
    }
    let token = file.token;
    if let Some(token) = &token {
        check_token("admin.token", token.expose())?;
    }
    let settings = AdminSettings {
        probes,
        listen,
        operators: tokens::operators(file.operators, token.as_ref())?,
        token,
        show_payloads: file.show_payloads,
        ready_needs_store: file.ready_needs_store,
    };
    if listen.is_some_and(|address| !address.ip().is_loopback()) && !settings.asks() {
        let text = "is not a loopback address, so that other machines could read what is for operators; \
                    set admin.token or [[admin.operators]], too, or write \"127.0.0.1:8442\"";
        return Err(Problem::new("admin.listen", text));
    }
    Ok(settings)
}

/// The most entries of the history. Each page costs a few bytes for each of them.
const HISTORY_ENTRIES_MAX: usize = 2_000_000;

/// Only operators read the history, so that it is kept where they are answered.
fn history(
    file: &file::History,
    admin: &AdminSettings,
) -> Result<Option<HistorySettings>, Problem> {
    if !(1..=HISTORY_ENTRIES_MAX).contains(&file.entries_max) {
        let text = format!("is not between 1 and {HISTORY_ENTRIES_MAX}");
        return Err(Problem::new("history.entries_max", text));
    }
    let is_kept = admin.listen.is_some() && !file.keep.is_zero();
    Ok(is_kept.then_some(HistorySettings {
        keep: file.keep,
        entries_max: file.entries_max,
    }))
}

fn admin_address(
    setting: &'static str,
    text: Option<String>,
    example: &str,
) -> Result<Option<SocketAddr>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || {
        let text = format!("{text:?} is not an address with a port; write \"{example}\"");
        Problem::new(setting, text)
    };
    address(&text).map(Some).ok_or_else(wrong)
}

fn drain(file: file::Drain, admin: &AdminSettings) -> Result<DrainSettings, Problem> {
    if let Some(token) = &file.token {
        check_token("drain.token", token.expose())?;
        if admin.probes.is_none() {
            let text = "set, but there is no probe listener; set admin.probes, too";
            return Err(Problem::new("drain.token", text));
        }
    }
    Ok(DrainSettings {
        delay: file.delay,
        grace: file.grace,
        token: file.token,
    })
}

words!(NativeTasks: "hide" => Self::Hide; or "pass" => Self::Pass);

words!(Seal: "off" => Self::Off, "mixed" => Self::Mixed; or "payloads" => Self::Payloads);

words!(EraChoice: "auto" => Self::Auto, "legacy" => Self::Legacy; or "modern" => Self::Modern);

words!(
    TransportChoice:
    "auto" => Self::Auto,
    "streamable-http" => Self::StreamableHttp;
    or "sse" => Self::Sse
);

words!(SessionUse: "pool" => Self::Pool; or "caller" => Self::Caller);

words!(
    CredentialUse:
    "forward" => Self::Forward,
    "strip" => Self::Strip;
    or "static" => Self::Static
);

words!(TraceProtocol: "http/protobuf" => Self::Http; or "grpc" => Self::Grpc);
words!(LogFormat: "text" => Self::Text; or "json" => Self::Json);

/// The shortest lease: three heartbeats, which come every second.
const LEASE_MIN: Duration = Duration::from_secs(3);
