//! Warnings of `raincheck check` and of the start: settings that are valid and probably not meant.

use super::duration::duration_text;
use super::settings::Config;
use super::trace_protocol::TraceProtocol;
use crate::jobs::job_call::JobCall;
use crate::mcp::tools::Tools;
use crate::task::policy::{Mode, Rule, Rules};

/// The warnings, each with its subject.
pub fn warnings(config: &Config) -> impl Iterator<Item = (&'static str, String)> {
    let hosts = nobody_gets_in(config).map(|text| ("listen", text));
    let signs_in = nobody_finds_out(config).map(|text| ("auth", text));
    let windows = long_windows(&config.rules).map(|text| ("grace_window", text));
    let questions = late_questions(&config.rules).map(|text| ("input_timeout", text));
    let spans = no_collector_there(config).map(|text| ("traces", text));
    let unused = config.unused.iter().map(|(setting, why)| {
        let section = setting.split('.').next().unwrap_or_default();
        (section, format!("{setting} does nothing here: {why}"))
    });
    let hidden = config.rules.hidden().into_iter().map(|(place, by)| {
        let (place, by) = (name(Some(place)), name(Some(by)));
        let text = format!("{place} never applies: {by} matches all of its tools and comes first");
        ("tools", text)
    });
    let ignored = config.ignored.iter().map(|(name, why)| {
        let text = format!("{name}: {why}");
        ("environment", text)
    });
    hosts
        .into_iter()
        .chain(signs_in)
        .chain(windows)
        .chain(questions)
        .chain(spans)
        .chain(unused)
        .chain(hidden)
        .chain(ignored)
}

/// Logs all warnings in one line, when the program starts to serve.
pub fn log(config: &Config) {
    let all: Vec<String> = warnings(config).map(|(_, text)| text).collect();
    if !all.is_empty() {
        let count = all.len();
        tracing::warn!(
            count,
            "settings that are probably not meant: {}",
            all.join("; ")
        );
    }
}

/// Warns of entries whose globs match none of the server's tools.
pub fn without_tools(rules: &Rules, tools: &[String]) -> impl Iterator<Item = String> {
    // A server without tools, or one that was not reached, says nothing about the rules.
    let without = rules.without_tools(tools).filter(|_| !tools.is_empty());
    without.map(|place| {
        let place = name(Some(place));
        format!(
            "{place} matches none of the tools below; is its name written as the server writes it?"
        )
    })
}

/// Warns of rules for jobs that do not fit the server: they are off, or name arguments that a tool lacks.
pub fn unfit_jobs(rules: &Rules, tools: &Tools) -> impl Iterator<Item = String> {
    let entries = rules.jobs().entries();
    // A server without tools, or one that was not reached, says nothing about the rules.
    let entries = entries.filter(|_| !tools.is_empty());
    entries.filter_map(|(start, rule)| {
        let place = &start.place;
        let mut starts = tools.names().filter(|tool| start.names(tool)).peekable();
        if starts.peek().is_none() {
            return Some(format!("{place}: the server has no tool that start names"));
        }
        starts.find_map(|tool| {
            let call = match JobCall::of(rule, tool, |name| tools.get(name)) {
                Ok(call) => call,
                Err(why) => return Some(format!("{place} is off for {tool:?}: {why}")),
            };
            let listed = tools.get(tool).map_or(&[][..], |tool| &tool.arguments);
            let mut dispatch = start
                .arguments
                .keys()
                .filter(|name| !listed.is_empty() && listed.iter().all(|it| *it.name != ***name));
            let of_start = dispatch.next().map(|name| (tool, name.as_str()));
            let (tool, argument) =
                of_start.or_else(|| call.unknown_arguments(tool, tools).next())?;
            Some(format!("{place}: {tool:?} has no argument {argument:?}"))
        })
    })
}

/// Warns if the listener is reachable from other machines and no `Host` of theirs is allowed.
fn nobody_gets_in(config: &Config) -> Option<String> {
    let listen = &config.listen;
    let is_open = !listen.is_loopback() && config.refuse_exposure().is_ok();
    if !is_open || !listen.allowed_hosts.is_empty() {
        return None;
    }
    let ip = listen.address.ip();
    let who = if ip.is_unspecified() {
        "no client on another machine gets in".to_owned()
    } else {
        format!("off this machine only who writes {ip} gets in")
    };
    Some(format!(
        "{who}: listen.allowed_hosts is empty; name the hosts that clients write, such as \
         \"tools.example.com\""
    ))
}

/// Warns if clients cannot find out where to sign in.
fn nobody_finds_out(config: &Config) -> Option<String> {
    let is_hidden = !config.auth.jwt.is_empty() && config.listen.public_url.is_none();
    is_hidden.then(|| {
        "listen.public_url is not set: clients are not told where to sign in, and must know it"
            .to_owned()
    })
}

/// Above this a grace window risks more than it gains.
const GRACE_WINDOW_USUAL_MS: u64 = 5_000;

/// Warns of long grace windows. A call without a task lives on its connection: a modern client's disconnect cancels it,
/// and many clients give up after a minute.
fn long_windows(rules: &Rules) -> impl Iterator<Item = String> {
    let defaults = rules.defaults();
    let entries = rules.entries().enumerate();
    // A value that an entry only inherits is reported once.
    let own = entries.filter(|(_, rule)| {
        rule.grace_window_ms != defaults.grace_window_ms || defaults.mode != Mode::Auto
    });
    let named = own.map(|(place, rule)| (name(Some(place)), rule));
    std::iter::once((name(None), defaults))
        .chain(named)
        .filter(|(_, rule)| rule.mode == Mode::Auto)
        .filter(|(_, rule)| rule.grace_window_ms > GRACE_WINDOW_USUAL_MS)
        .map(|(name, rule)| {
            format!(
                "{name}: {} is long: until its task is announced, a call is lost with its connection",
                duration_text(rule.grace_window_ms)
            )
        })
}

/// Warns of rules under which a call ends before `input_timeout` is over.
fn late_questions(rules: &Rules) -> impl Iterator<Item = String> {
    let defaults = rules.defaults();
    let times = |rule: &Rule| (rule.input_timeout_ms, rule.max_duration_ms);
    let entries = rules.entries().enumerate();
    // What an entry only inherits is reported once.
    let own = entries.filter(move |(_, rule)| times(rule) != times(defaults));
    let named = own.map(|(place, rule)| (name(Some(place)), rule));
    let all = std::iter::once((name(None), defaults)).chain(named);
    all.filter_map(|(name, rule)| {
        let timeout = rule.input_timeout_ms?;
        let (timeout_text, longest) = (duration_text(timeout), duration_text(rule.max_duration_ms));
        let is_late = timeout >= rule.max_duration_ms;
        is_late.then(|| {
            format!(
                "{name}: {timeout_text} never comes: a call ends after its max_duration, {longest}"
            )
        })
    })
}

/// The ports of collectors.
const GRPC_PORT: u16 = 4317;
const HTTP_PORT: u16 = 4318;

/// Warns of an endpoint where collectors take no spans by that protocol. The variables of OpenTelemetry get their path by
/// themselves.
fn no_collector_there(config: &Config) -> Option<String> {
    let traces = config.telemetry.traces.as_ref()?;
    let endpoint = &traces.endpoint;
    let (port, has_path) = (endpoint.port_u16(), endpoint.path() != "/");
    let wrong = match traces.protocol {
        TraceProtocol::Http if port == Some(GRPC_PORT) => {
            "collectors take gRPC at port 4317, and OTLP over HTTP at 4318; for gRPC, write protocol = \"grpc\""
        }
        TraceProtocol::Grpc if port == Some(HTTP_PORT) => {
            "collectors take OTLP over HTTP at port 4318, and gRPC at 4317"
        }
        TraceProtocol::Http if !has_path => {
            "it has no path, and collectors take spans at /v1/traces"
        }
        TraceProtocol::Grpc if has_path => "its path does not count, because gRPC has its own",
        TraceProtocol::Http | TraceProtocol::Grpc => return None,
    };
    Some(format!("telemetry.traces.endpoint {endpoint}: {wrong}"))
}

/// The name of a rule in the configuration file.
pub fn name(place: Option<usize>) -> String {
    place.map_or_else(
        || "[tasks]".to_owned(),
        |place| format!("[[tools]] #{}", place + 1),
    )
}
