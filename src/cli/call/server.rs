//! The server that is called: any MCP server with an address, or a program.

use std::path::PathBuf;
use std::sync::Arc;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::app::diagnose::{ENVIRONMENT, diagnose, forbidden};
use crate::app::upstream_settings;
use crate::base::io_reason::io_reason;
use crate::cli::failure::CommandFailure;
use crate::cli::operate::reachable;
use crate::config::load::{Flags, environment, load, public_address};
use crate::config::{Config, has_right_port};
use crate::mcp::json::Writer;
use crate::mcp::meta::{CLIENT_CAPABILITIES, PROTOCOL_VERSION, TASKS_EXTENSION};
use crate::mcp::params::mirrored;
use crate::mcp::tools::Tool;
use crate::mcp::version::{Era, MODERN};
use crate::platform::environment::quoted;
use crate::upstream::UpstreamRequest;
use crate::upstream::wrapped::{DiscoverError, Upstream};

/// The one caller of this process.
pub(super) const NOBODY: [u8; 16] = [0; 16];

/// The server's connections, and its name for people.
#[derive(Debug)]
pub(super) struct CalledServer {
    pub(super) upstream: Upstream,
    config: Config,
    /// `true` if the user has named the server.
    is_named: bool,
}

/// The server that the command line names.
#[derive(Debug, Default)]
pub(super) struct ServerArgs {
    pub(super) url: Option<String>,
    pub(super) config: Option<PathBuf>,
    pub(super) headers: Vec<String>,
    pub(super) command: Vec<String>,
}

impl CalledServer {
    /// Prepares to call the server. Nothing is sent yet.
    pub(super) fn new(target: ServerArgs, jobs: TaskTracker) -> Result<Self, CommandFailure> {
        let is_named = target.url.is_some() || !target.command.is_empty();
        let url = match (target.url, target.command.is_empty()) {
            (Some(url), _) => Some(checked(url)?),
            (None, true) => Some(public_address(
                target.config.as_deref(),
                &environment(),
                reachable,
            )?),
            (None, false) => None,
        };
        let flags = Flags {
            upstream: url,
            // The settings demand a store, and this command opens none.
            store: Some("memory:".into()),
            command: target.command,
            ..Flags::default()
        };
        // What the environment says of raincheck's own server is not for the server that is called here.
        let mut others = environment();
        others.retain(|(name, _)| !name.starts_with("RAINCHECK_"));
        if !flags.command.is_empty() {
            // As if the user had started the program.
            let names = others.iter().map(|(name, _)| &**name);
            let names: Vec<&str> = names.filter(is_plain).collect();
            let all = ("RAINCHECK_UPSTREAM__ENV_ALLOW".to_owned(), names.join(","));
            others.push(all);
        }
        // The settings name the flag of `raincheck run`, and this command has another one.
        let config = load(&flags, &others).map_err(|error| {
            CommandFailure::usage(error.to_string().replacen("--upstream", "--url", 1))
        })?;
        let mut settings = upstream_settings(&config).map_err(CommandFailure::usage)?;
        settings.headers = headers(&target.headers)?;
        let upstream = Upstream::new(&settings, jobs);
        let upstream = upstream.map_err(|error| CommandFailure::runtime(error.to_string()))?;
        Ok(Self {
            upstream,
            config,
            is_named,
        })
    }

    /// Returns the server's era. The error contains advice.
    pub(super) async fn era(&self) -> Result<Era, CommandFailure> {
        let era = self.upstream.era(None).await;
        era.map_err(|error| self.unreachable(&error))
    }

    /// Returns the known facts about a tool. A server that does not list its tools may have it all the same.
    pub(super) async fn tool(&self, name: &str, capabilities: &str) -> Tool {
        let tools = self.upstream.tools(NOBODY, None, capabilities.into()).await;
        let tool = tools.ok().and_then(|tools| tools.get(name).cloned());
        tool.unwrap_or_default()
    }

    fn unreachable(&self, error: &DiscoverError) -> CommandFailure {
        let server = &self.config.upstream.server;
        CommandFailure::runtime(match error {
            DiscoverError::Unauthorized(error) if error.status == 401 => format!(
                "{server} wants credentials (HTTP {}): --header 'Authorization: Bearer TOKEN', or --header @FILE",
                error.status
            ),
            // Servers also refuse a Host or an Origin with 403, so credentials may not be the cause.
            DiscoverError::Unauthorized(error) => format!(
                "{server}: {}; if it wants credentials: --header 'Authorization: Bearer TOKEN', or --header @FILE",
                forbidden(error)
            ),
            DiscoverError::Refused(_) | DiscoverError::Failed(_) => {
                let why = diagnose(error, self.upstream.obstacle().as_ref(), &self.config);
                // Here the program sees the environment, so this advice would be wrong.
                let why = why.trim_end_matches(ENVIRONMENT);
                let advice = if self.is_named {
                    ""
                } else {
                    "; another server is named with --url, or its command after --"
                };
                format!("{server}: {why}{advice}")
            }
        })
    }
}

/// Returns `true` if a list of names in the environment can hold the name.
fn is_plain(name: &&str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the capabilities of this client. Without a source of answers, it cannot be asked.
pub(super) fn capabilities(answers: bool) -> String {
    let mut all = json!({"extensions": {TASKS_EXTENSION: {}}});
    if answers && let Some(all) = all.as_object_mut() {
        all.insert("elicitation".into(), json!({"form": {}, "url": {}}));
    }
    all.to_string()
}

/// A `tools/call`.
pub(super) fn call_request(
    name: &str,
    arguments: &RawValue,
    capabilities: &str,
    (era, tool): (Era, &Tool),
) -> UpstreamRequest {
    let mut params = Writer::object();
    params.str("name", name).raw("arguments", arguments.get());
    params.raw("_meta", &meta(capabilities));
    let mirrored = mirrored(tool, Some(arguments)).filter_map(|(name, value)| {
        let name = name.parse::<HeaderName>().ok()?;
        Some((name, value.parse::<HeaderValue>().ok()?))
    });
    // A legacy server makes tasks of its own only of those tools that run in no other way.
    let native_task = era == Era::Modern || tool.requires_task();
    UpstreamRequest::new(NOBODY, "tools/call", params.end())
        .declaring(capabilities)
        .described_by(Some(name.into()), mirrored.collect())
        .with_progress(true)
        .for_call(None, native_task)
}

/// A `tasks/get`.
pub(super) fn task_request(id: &str) -> UpstreamRequest {
    let declared = capabilities(true);
    let mut params = Writer::object();
    params.str("taskId", id).raw("_meta", &meta(&declared));
    UpstreamRequest::new(NOBODY, "tasks/get", params.end())
        .declaring(declared)
        .described_by(Some(Arc::from(id)), [].into())
        .for_call(None, true)
}

/// A `resources/read`.
pub(super) fn read_request(uri: &Arc<str>) -> UpstreamRequest {
    let declared = capabilities(true);
    let mut params = Writer::object();
    params.str("uri", uri).raw("_meta", &meta(&declared));
    UpstreamRequest::new(NOBODY, "resources/read", params.end())
        .declaring(declared)
        .described_by(Some(Arc::clone(uri)), [].into())
}

fn meta(capabilities: &str) -> String {
    let client = json!({"name": "raincheck-call", "version": env!("CARGO_PKG_VERSION")});
    let mut meta = Writer::object();
    meta.str(PROTOCOL_VERSION, MODERN)
        .raw("io.modelcontextprotocol/clientInfo", &client.to_string())
        .raw(CLIENT_CAPABILITIES, capabilities);
    meta.end()
}

/// The arguments of a tool, as they were written.
pub(super) fn arguments(text: &str) -> Result<Box<RawValue>, CommandFailure> {
    let refused = |why: &str| {
        CommandFailure::usage(format!(
            "the arguments are {why}; write the tool's arguments, such as {}",
            quoted(r#"{"city":"Kyoto"}"#)
        ))
    };
    // Kept as raw text, so that numbers and the order of members reach the server unchanged.
    let parsed: Result<Box<RawValue>, _> = serde_json::from_str(text);
    let parsed = parsed.map_err(|error| refused(&format!("not JSON: {error}")))?;
    match serde_json::from_str(parsed.get()) {
        Ok(Value::Object(_)) => Ok(parsed),
        _ => Err(refused("no JSON object")),
    }
}

fn checked(url: String) -> Result<String, CommandFailure> {
    let refused = "--url: not the URL of an MCP server; write http://127.0.0.1:8440/mcp or unix:/run/mcp.sock";
    if url.starts_with("unix:") {
        return Ok(url);
    }
    let parsed = url.parse::<Uri>().ok();
    let parsed = parsed
        .filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && has_right_port(url));
    let has_host = parsed.is_some_and(|url| url.host().is_some_and(|host| !host.is_empty()));
    if has_host {
        Ok(url)
    } else {
        Err(CommandFailure::usage(refused))
    }
}

/// `Name: value`, or a file with such lines: what stands on the command line can be read by other users.
fn headers(written: &[String]) -> Result<HeaderMap, CommandFailure> {
    let mut headers = HeaderMap::new();
    for text in written {
        let lines = match text.strip_prefix('@') {
            None => text.clone(),
            Some(file) => std::fs::read_to_string(file).map_err(|error| {
                let why = io_reason(&error);
                CommandFailure::usage(format!("--header: {file}: cannot be read: {why}"))
            })?,
        };
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (name, mut value) = header(line).ok_or_else(|| {
                // Not quoted: the value may be a secret.
                CommandFailure::usage(
                    "--header: not a header; write 'Name: value', or @FILE with such lines",
                )
            })?;
            // Debug output leaves out a sensitive value.
            value.set_sensitive(true);
            headers.append(name, value);
        }
    }
    Ok(headers)
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_say_what_to_write() {
        let of = |failure: CommandFailure| {
            assert_eq!(failure.code, 2);
            failure.text
        };
        for wrong in ["localhost:8440", "ftp://a/", "http:///mcp", "/mcp"] {
            assert!(
                of(checked(wrong.into()).unwrap_err()).contains("http://"),
                "{wrong}"
            );
        }
        for wrong in ["{", "7", "[]", "city=Kyoto"] {
            assert!(
                of(arguments(wrong).unwrap_err()).contains("Kyoto"),
                "{wrong}"
            );
        }
        let secret = of(headers(&["Bearer s3cret".into()]).unwrap_err());
        assert!(!secret.contains("s3cret"), "{secret}");
        assert!(of(headers(&["@/nonexistent".into()]).unwrap_err()).contains("/nonexistent"));
    }

    #[test]
    fn what_is_written_is_sent() {
        let text = r#"{"n":1.10, "big":12345678901234567890123}"#;
        let arguments = arguments(text).unwrap();
        let known = (Era::Modern, &Tool::default());
        let request = call_request("t", &arguments, &capabilities(true), known);
        assert!(request.params.contains(text), "{}", request.params);
        assert!(request.native_task);
        let headers = headers(&["X-A: 1".into(), "x-a:2".into()]).unwrap();
        assert_eq!(headers.get_all("x-a").iter().count(), 2);
    }

    #[test]
    fn without_somebody_who_answers_nothing_can_be_asked() {
        assert!(capabilities(true).contains("elicitation"));
        assert!(!capabilities(false).contains("elicitation"));
    }
}
