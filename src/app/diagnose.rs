//! Why the wrapped server did not answer, and what its operator can do about it, in one sentence.
//!
//! The sentence holds no secret: no query of a URL, no value of a header, no argument.

use std::path::{Path, is_separator};
use std::process::ExitStatus;
use std::time::Duration;

use hyper::StatusCode;

use crate::base::io_reason::io_reason;
use crate::base::printable::short;
use crate::config::{Config, CredentialUse, Wrapped, WrappedCommand, duration_text};
use crate::mcp::error::{Failure, Reason};
use crate::mcp::json::Object;
use crate::mcp::result;
use crate::upstream::wrapped::DiscoverError;
use crate::upstream::{Obstacle, UpstreamError};

/// Describes the problem, based on the error of the request and the obstacle that the transport encountered.
pub fn diagnose(error: &DiscoverError, seen: Option<&Obstacle>, config: &Config) -> String {
    let failure = match error {
        DiscoverError::Unauthorized(error) => {
            let credentials = unauthorized(error.status, config);
            return match error.status {
                403 => format!("{}; or {credentials}", forbidden(error)),
                _ => credentials,
            };
        }
        DiscoverError::Refused(error) => return answered(error),
        DiscoverError::Failed(failure) => failure,
    };
    let server = &config.upstream.server;
    let message = failure.sentence();
    match (seen, failure.reason) {
        // A program that did not start or has ended is the cause, whatever the reason of the failure is.
        (Some(Obstacle::NotStarted(why)), _) => not_started(why, server),
        (
            Some(Obstacle::Ended {
                status,
                lived,
                words,
            }),
            _,
        ) => ended(*status, *lived, words, server),
        // The obstacle may be older than the failure, so it counts only where the reason of the failure fits.
        (Some(Obstacle::NoConnection(why)), Reason::UpstreamUnreachable) => {
            format!("{message}: {}", short(why))
        }
        (Some(Obstacle::NoTls), Reason::UpstreamUnreachable) => {
            "it does not speak TLS: write http://".to_owned()
        }
        (Some(Obstacle::NoHttp2), Reason::UpstreamUnreachable) => {
            "it did not answer in HTTP/2: take upstream.http2 out if it does not speak HTTP/2"
                .to_owned()
        }
        (Some(Obstacle::Connecting(timeout)), Reason::UpstreamUnreachable) => format!(
            "no connection came about in time; upstream.connect_timeout is {}",
            spelled(*timeout)
        ),
        (Some(Obstacle::Silent(patience)), Reason::UpstreamUnreachable) => format!(
            "no answer within {} to the question which era it speaks; upstream.era = \"legacy\" (or \
             \"modern\") spares it that question",
            spelled(*patience)
        ),
        (Some(Obstacle::Status { status, location }), Reason::UpstreamHttp) => {
            refused(*status, location.as_deref(), server)
        }
        (_, Reason::UpstreamInvalid) => invalid(failure, server),
        _ => message.to_owned(),
    }
}

/// The answer was no message of MCP.
fn invalid(failure: &Failure, server: &Wrapped) -> String {
    let message = failure.sentence();
    match (&failure.detail, path(server)) {
        (Some(detail), Some(path)) if detail.status().is_some() => {
            format!("{message}: {}; {}", short(&detail.to_string()), usual(path))
        }
        (Some(detail), _) => format!("{message}: {}", short(&detail.to_string())),
        (None, _) => message.to_owned(),
    }
}

/// Asks for the path that most wrong addresses have wrong.
fn usual(path: &str) -> String {
    let usual: Vec<_> = ["/mcp", "/sse"]
        .into_iter()
        .filter(|p| *p != path)
        .collect();
    let path = short(path);
    let usual = usual.join(" or ");
    format!("is {path} the server's MCP path? Often it is {usual}")
}

fn spelled(time: Duration) -> String {
    duration_text(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Whose credentials the server wants.
fn unauthorized(status: u16, config: &Config) -> String {
    match config.upstream.credentials.used {
        CredentialUse::Static => {
            format!("it refused the credentials of upstream.headers (HTTP {status})")
        }
        CredentialUse::Forward => {
            format!(
                "it wants credentials (HTTP {status}), and check has none; clients send their own"
            )
        }
        CredentialUse::Strip => format!(
            "it wants credentials (HTTP {status}), and clients' own do not go there \
             (upstream.credentials): set upstream.same_resource if it is one resource with raincheck, or \
             set upstream.headers.authorization"
        ),
    }
}

/// Describes a 403 response. Servers also refuse a Host or an Origin with a 403, and credentials do not help then.
pub fn forbidden(error: &UpstreamError) -> String {
    let message = result::error_message(&error.error).unwrap_or_default();
    format!(
        "it refuses the request (HTTP {}): {}",
        error.status,
        short(&message)
    )
}

/// The server answered with a JSON-RPC error.
fn answered(error: &UpstreamError) -> String {
    let object = Object::parse(error.error.get()).unwrap_or_default();
    let code = result::error_code(&error.error).unwrap_or_default();
    match object.get_str("message") {
        Some(message) => format!("it answered with the error {code}: {}", short(&message)),
        None => format!("it answered with the error {code}"),
    }
}

/// The server answered with HTTP and without MCP.
fn refused(status: StatusCode, location: Option<&str>, server: &Wrapped) -> String {
    let number = status.as_u16();
    let Some(path) = path(server) else {
        return format!("HTTP {number}");
    };
    match (status, location) {
        (_, Some(location)) if status.is_redirection() => {
            let place = absolute(location, server);
            let place = short(&place);
            let advice = match status {
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => "write that address in upstream.url",
                // Probably a page to sign in.
                _ => "is upstream.url the server's MCP endpoint?",
            };
            format!("HTTP {number} to {place}, which is not followed: {advice}")
        }
        (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => {
            format!("HTTP {number}: {}", usual(path))
        }
        _ => format!("HTTP {number}, without a word of MCP"),
    }
}

fn path(server: &Wrapped) -> Option<&str> {
    match server {
        Wrapped::Url(url) => Some(url.path()),
        Wrapped::Unix(socket) => Some(socket.path.path()),
        Wrapped::Command(_) => None,
    }
}

/// The `Location` as a full address, if that is clear.
fn absolute(location: &str, server: &Wrapped) -> String {
    // A query may carry a token, and this text is printed.
    let location = without_query(location);
    if let Some((scheme, rest)) = location.split_once("://") {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The part before `@` may be a password.
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        return format!("{scheme}://{host}{path}");
    }
    // `//host/path` names a host of its own, so it is no path of this server.
    let is_path = location.starts_with('/') && !location.starts_with("//");
    match server {
        Wrapped::Url(url) if is_path => {
            let scheme = url.scheme_str().unwrap_or("http");
            let authority = url.authority().map_or("", |authority| authority.as_str());
            format!("{scheme}://{authority}{location}")
        }
        Wrapped::Url(_) | Wrapped::Unix(_) | Wrapped::Command(_) => location.to_owned(),
    }
}

fn without_query(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

fn not_started(why: &str, server: &Wrapped) -> String {
    let has_directory = matches!(server, Wrapped::Command(command) if command.directory.is_some());
    let advice = if has_directory {
        "; is upstream.cwd a directory?"
    } else {
        ""
    };
    format!("it cannot be started: {}{advice}", without_number(why))
}

/// A program that ends within this time ended "at once".
const AT_ONCE: Duration = Duration::from_secs(2);

fn ended(status: ExitStatus, lived: Duration, words: &str, server: &Wrapped) -> String {
    if let Wrapped::Command(command) = server
        && let Some(why) = not_run(status, words, command)
    {
        return why;
    }
    // "exit status: 1" and "signal: 9 (SIGKILL)".
    let status = status.to_string().replacen(": ", " ", 1);
    let when = if lived < AT_ONCE {
        "at once".to_owned()
    } else {
        format!("after {} s", lived.as_secs())
    };
    let said = if words.is_empty() {
        String::new()
    } else {
        format!(": \"{}\"", short(words))
    };
    format!("it ended {when} ({status}){said}{ENVIRONMENT}")
}

/// The hint for a program that ended soon: most such programs lack a part of the environment, unless they see all of
/// it.
pub const ENVIRONMENT: &str = ". Of this environment it sees only PATH, HOME and the like, and what \
                                      upstream.env_allow names";

/// The message of `raincheck __child` if it could not run the program.
fn not_run(status: ExitStatus, words: &str, command: &WrappedCommand) -> Option<String> {
    let start = format!("raincheck: {} cannot be run: ", command.program);
    let why = without_number(words.strip_prefix(&start)?);
    let advice = match status.code()? {
        // The kernel reports the missing interpreter of a script in the same way as a missing program.
        127 if command.program.contains(is_separator) && Path::new(&command.program).exists() => {
            "; it is there, but not what its first line (#!) names; does that line end as on Windows?"
        }
        127 if command.program.contains(char::is_whitespace) => {
            "; is that the program and its arguments? Write them as words of their own"
        }
        127 if is_setting(&command.program) => {
            "; is that a variable? It belongs into upstream.env, or before raincheck"
        }
        127 if command.program.contains(is_separator) => "",
        127 => "; is it on the PATH?",
        126 => "; is it a program, and yours to run?",
        _ => return None,
    };
    Some(format!("it cannot be run: {why}{advice}"))
}

/// Returns `true` if a shell would treat this word as a variable, as in `KEY=value program`.
fn is_setting(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

fn without_number(error: &str) -> String {
    short(&io_reason(&error)).into_owned()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::config::load::{Flags, load};
    use crate::mcp::error::{RpcError, SideEffect};
    use crate::upstream::UpstreamError;

    fn config(upstream: &str, environment: &[(&str, &str)]) -> Config {
        let flags = Flags {
            upstream: Some(upstream.into()),
            store: Some("memory:".into()),
            ..Flags::default()
        };
        let pairs = environment.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        load(&flags, &pairs.collect::<Vec<_>>()).unwrap()
    }

    fn program(words: &[&str]) -> Config {
        let flags = Flags {
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            store: Some("memory:".into()),
            ..Flags::default()
        };
        load(&flags, &[]).unwrap()
    }

    fn failed(reason: Reason) -> DiscoverError {
        DiscoverError::Failed(Failure::new(reason, SideEffect::None))
    }

    fn refused(url: &str, status: u16, location: Option<&str>) -> String {
        let seen = Obstacle::Status {
            status: StatusCode::from_u16(status).unwrap(),
            location: location.map(str::to_owned),
        };
        let error = failed(Reason::UpstreamHttp);
        diagnose(&error, Some(&seen), &config(url, &[]))
    }

    #[test]
    fn a_redirect_is_an_address_to_write_without_what_may_be_secret() {
        let url = "http://127.0.0.1:1/mcp/";
        let follow = "which is not followed: write that address in upstream.url";
        for location in [
            "/mcp",
            "/mcp?token=s3cret",
            "http://user:s3cret@127.0.0.1:1/mcp#s3cret",
        ] {
            let expected = format!("HTTP 307 to http://127.0.0.1:1/mcp, {follow}");
            assert_eq!(refused(url, 307, Some(location)), expected, "{location}");
        }
        let to_sign_in = refused(url, 302, Some("https://sso.example/login?s3cret"));
        assert_eq!(
            to_sign_in,
            "HTTP 302 to https://sso.example/login, which is not followed: is upstream.url the server's MCP endpoint?"
        );
    }

    #[test]
    fn a_wrong_path_is_named() {
        assert_eq!(
            refused("http://127.0.0.1:1/wrong?s3cret", 404, None),
            "HTTP 404: is /wrong the server's MCP path? Often it is /mcp or /sse"
        );
        assert_eq!(
            refused("http://127.0.0.1:1/mcp", 405, None),
            "HTTP 405: is /mcp the server's MCP path? Often it is /sse"
        );
        assert_eq!(
            refused("http://127.0.0.1:1/mcp", 502, None),
            "HTTP 502, without a word of MCP"
        );
    }

    #[test]
    fn whose_credentials_are_wanted_is_said() {
        let said = |url, environment: &[(&str, &str)]| {
            let error = UpstreamError {
                error: RpcError::internal("").to_raw(),
                status: 401,
                www_authenticate: None,
            };
            let error = DiscoverError::Unauthorized(error);
            diagnose(&error, None, &config(url, environment))
        };
        let (here, there) = ("http://127.0.0.1:1/mcp", "https://tools.example/mcp");
        let ours = [(
            "RAINCHECK_UPSTREAM__HEADERS__AUTHORIZATION",
            "Bearer s3cret",
        )];
        assert!(said(here, &[]).ends_with("clients send their own"));
        assert!(said(there, &[]).ends_with("set upstream.headers.authorization"));
        for url in [here, there] {
            assert_eq!(
                said(url, &ours),
                "it refused the credentials of upstream.headers (HTTP 401)"
            );
        }
    }

    #[test]
    fn a_403_is_told_in_its_own_words_because_no_credentials_may_help() {
        let error = UpstreamError {
            error: RpcError::invalid_request("Invalid Host header").to_raw(),
            status: 403,
            www_authenticate: None,
        };
        let error = DiscoverError::Unauthorized(error);
        assert_eq!(
            diagnose(&error, None, &config("http://127.0.0.1:1/mcp", &[])),
            "it refuses the request (HTTP 403): Invalid Host header; or it wants credentials (HTTP 403), and check \
             has none; clients send their own"
        );
    }

    #[test]
    fn what_a_shell_would_have_taken_apart_is_told() {
        for (word, expected) in [
            (
                "npx -y @x/server",
                "; is that the program and its arguments?",
            ),
            ("TOKEN=x", "; is that a variable?"),
            (
                env!("CARGO_MANIFEST_DIR"),
                "; it is there, but not what its first line (#!) names",
            ),
        ] {
            let program = program(&[word]);
            let seen = Obstacle::Ended {
                status: ExitStatus::from_raw(127 << 8),
                lived: Duration::from_millis(3),
                words: format!(
                    "raincheck: {word} cannot be run: No such file or directory (os error 2)"
                ),
            };
            let error = failed(Reason::UpstreamUnreachable);
            let said = diagnose(&error, Some(&seen), &program);
            let said = said
                .strip_prefix("it cannot be run: No such file or directory")
                .unwrap();
            assert!(said.starts_with(expected), "{word}: {said}");
        }
    }

    #[test]
    fn why_a_program_ended_is_said_in_its_own_words() {
        let said = |program: &Config, code: i32, words: &str| {
            let seen = Obstacle::Ended {
                status: ExitStatus::from_raw(code << 8),
                lived: Duration::from_millis(30),
                words: words.into(),
            };
            diagnose(&failed(Reason::UpstreamUnreachable), Some(&seen), program)
        };
        let server = program(&["server", "s3cret"]);
        let text = said(&server, 1, "Error: \u{1b}[31mGITHUB_TOKEN is not set");
        let expected =
            "it ended at once (exit status 1): \"Error: \u{fffd}[31mGITHUB_TOKEN is not set\". ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("what upstream.env_allow names"), "{text}");
        let why = "cannot be run: No such file or directory (os error 2)";
        assert_eq!(
            said(&server, 127, &format!("raincheck: server {why}")),
            "it cannot be run: No such file or directory; is it on the PATH?"
        );
        let at = program(&["/x/server"]);
        assert_eq!(
            said(&at, 127, &format!("raincheck: /x/server {why}")),
            "it cannot be run: No such file or directory"
        );
    }

    /// An obstacle that does not fit the error is not reported as the reason.
    #[test]
    fn only_what_fits_is_said() {
        let config = config("http://127.0.0.1:1/mcp", &[]);
        let error = failed(Reason::UpstreamInvalid);
        let text = diagnose(&error, Some(&Obstacle::NoTls), &config);
        assert!(text.contains("not a valid MCP message"), "{text}");
    }
}
