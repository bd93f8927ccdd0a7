//! The variables that OpenTelemetry defines for every program. A wrong value is left out with a warning and is no reason
//! not to start: another program may be meant.

use std::path::PathBuf;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};

use super::port::has_right_port;
use super::ratio::Ratio;
use super::scalar::FromText as _;
use super::secret::Secret;
use super::settings_upstream::Header;
use super::trace_protocol::TraceProtocol;

/// The collector of a machine that names no endpoint.
const USUAL: &str = "http://localhost:4318";
const USUAL_GRPC: &str = "http://localhost:4317";

const PATH: &str = "/v1/traces";

/// The variables with a value, as raincheck reads them.
pub(super) struct Variables<'e>(&'e [(String, String)]);

impl<'e> Variables<'e> {
    pub(super) fn new(environment: &'e [(String, String)]) -> Self {
        Self(environment)
    }

    fn get(&self, name: &str) -> Option<&'e str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.trim())
            .filter(|it| !it.is_empty())
    }

    /// Returns the value that counts for traces, or else for all signals.
    fn of_traces(&self, name: &str) -> Option<&'e str> {
        self.get(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    /// Returns `true` if nothing is to be exported, whatever the settings are.
    pub(super) fn switch_off(&self) -> bool {
        let is_disabled = self.get("OTEL_SDK_DISABLED");
        is_disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || self.get("OTEL_TRACES_EXPORTER") == Some("none")
    }

    pub(super) fn protocol(&self) -> TraceProtocol {
        // Another one is left out, with a warning.
        let named = self.of_traces("PROTOCOL");
        let named = named.map(TraceProtocol::from_text).transpose();
        named.ok().flatten().unwrap_or(TraceProtocol::Http)
    }

    /// `protocol`: that of the settings, if they name one.
    pub(super) fn endpoint(&self, protocol: Option<TraceProtocol>) -> Option<Uri> {
        let exporter = self.get("OTEL_TRACES_EXPORTER");
        let is_ours = exporter.is_none_or(|names| names.split(',').any(|it| it.trim() == "otlp"));
        if !is_ours {
            return None;
        }
        // This variable is a whole URL. The one for all signals is a base, to which the path is added (OTLP).
        if let Some(whole) = self.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            return uri(whole);
        }
        let (usual, path) = match protocol.unwrap_or_else(|| self.protocol()) {
            TraceProtocol::Http => (USUAL, PATH),
            TraceProtocol::Grpc => (USUAL_GRPC, ""),
        };
        // An exporter that is named without an endpoint uses the default one of OTLP.
        let usual = exporter.map(|_| usual);
        let base = self.get("OTEL_EXPORTER_OTLP_ENDPOINT").or(usual)?;
        uri(&format!("{}{path}", base.trim_end_matches('/')))
    }

    pub(super) fn headers(&self) -> Vec<Header> {
        let written = pairs(self.of_traces("HEADERS").unwrap_or_default());
        let headers = written.into_iter().filter_map(|(name, value)| {
            let name: HeaderName = name.to_lowercase().parse().ok()?;
            // A value that cannot be sent is left out here and reported by `ignored`.
            HeaderValue::from_str(&value).ok()?;
            let value = Secret::new(value);
            Some(Header { name, value })
        });
        headers.collect()
    }

    pub(super) fn roots(&self) -> Option<PathBuf> {
        self.of_traces("CERTIFICATE").map(PathBuf::from)
    }

    /// Returns the attributes that describe this process.
    pub(super) fn resource(&self) -> Vec<(String, String)> {
        pairs(self.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default())
    }

    pub(super) fn service(&self) -> Option<String> {
        let named = self.get("OTEL_SERVICE_NAME").map(str::to_owned);
        named.or_else(|| {
            let resource = self.resource().into_iter();
            let mut names = resource.filter(|(name, _)| name == "service.name");
            names.next().map(|(_, name)| name)
        })
    }

    pub(super) fn ratio(&self) -> Option<Ratio> {
        match self.get("OTEL_TRACES_SAMPLER")? {
            "parentbased_always_on" => Ratio::from_text("1").ok(),
            "parentbased_always_off" => Ratio::from_text("0").ok(),
            "parentbased_traceidratio" => {
                Ratio::from_text(self.get("OTEL_TRACES_SAMPLER_ARG").unwrap_or("1")).ok()
            }
            _ => None,
        }
    }

    /// The variables that have no effect, or another one than they seem to have, each with why.
    pub(super) fn ignored(&self) -> Vec<(String, String)> {
        let named = self.0.iter().map(|(name, _)| name.as_str());
        let found = named.filter_map(|name| {
            let why = self.why_ignored(name, self.get(name)?)?;
            Some((name.to_owned(), why.to_owned()))
        });
        found.collect()
    }

    fn why_ignored(&self, name: &str, value: &str) -> Option<&'static str> {
        match name {
            "OTEL_METRICS_EXPORTER" | "OTEL_LOGS_EXPORTER" if value != "none" => Some(
                "raincheck exports traces only; metrics are served at admin.listen, and the log goes to stderr",
            ),
            // Only "true" counts (Environment Variable Specification, Boolean value).
            "OTEL_SDK_DISABLED" if !["true", "false"].contains(&&*value.to_ascii_lowercase()) => {
                Some("does not count: it is neither true nor false")
            }
            "OTEL_TRACES_EXPORTER" if !["otlp", "none"].contains(&value) => {
                Some("raincheck knows \"otlp\" and \"none\"")
            }
            "OTEL_TRACES_SAMPLER" if self.ratio().is_none() => Some(
                "not read: write \"parentbased_always_on\", \"parentbased_always_off\" or \"parentbased_traceidratio\" \
                 with a number from 0 to 1 in OTEL_TRACES_SAMPLER_ARG",
            ),
            "OTEL_PROPAGATORS" if !value.split(',').any(|it| it.trim() == "tracecontext") => {
                Some("not read: raincheck passes traceparent on, and no other form")
            }
            "OTEL_EXPORTER_OTLP_PROTOCOL" | "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" => match value {
                "http/protobuf" | "grpc" => None,
                _ => Some("not read: raincheck exports as http/protobuf, or over grpc"),
            },
            "OTEL_EXPORTER_OTLP_ENDPOINT" | "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => {
                let is_read = uri(value).is_some();
                (!is_read).then_some("not where a collector is; write \"http://127.0.0.1:4318\"")
            }
            "OTEL_EXPORTER_OTLP_HEADERS" | "OTEL_EXPORTER_OTLP_TRACES_HEADERS" => {
                let is_read = self.headers().len() == value.split(',').count();
                (!is_read).then_some("in part not read: write \"name=value,name=value\"")
            }
            "OTEL_EXPORTER_OTLP_CERTIFICATE" | "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE" => None,
            _ => ["OTEL_EXPORTER_OTLP_", "OTEL_BSP_", "OTEL_SPAN_"]
                .iter()
                .any(|begin| name.starts_with(begin))
                .then_some("not read: raincheck has no such setting for its traces"),
        }
    }
}

/// An address of a collector.
pub(super) fn uri(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority()?.as_str();
    (is_http && !authority.contains('@') && has_right_port(&uri)).then_some(uri)
}

/// `name=value,name=value`, the values percent-encoded. A part that is none of these is left out.
fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split(',').filter_map(|part| {
        let (name, value) = part.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then_some(())?;
        Some((name.to_owned(), decoded(value.trim())?))
    });
    parts.collect()
}

/// `None`: the text is not UTF-8, or has a `%` that begins nothing.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, encoded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        bytes.push(u8::from_str_radix(encoded.get(..2)?, 16).ok()?);
        rest = encoded.get(2..)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_told_and_no_value_is() {
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter2,broken"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "3"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_LOGS_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "otlp"),
            ("OTEL_SDK_DISABLED", "yes"),
            ("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "x"),
            ("OTEL_SERVICE_NAME", "x"),
            ("OTEL_TRACES_SAMPLER", "always_on"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let ignored = Variables::new(&environment).ignored();
        let names: Vec<_> = ignored.iter().map(|(name, _)| &**name).collect();
        assert_eq!(
            names,
            [
                "OTEL_EXPORTER_OTLP_HEADERS",
                "OTEL_EXPORTER_OTLP_TIMEOUT",
                "OTEL_METRICS_EXPORTER",
                "OTEL_SDK_DISABLED",
                "OTEL_TRACES_SAMPLER",
            ]
        );
        assert!(!format!("{ignored:?}").contains("hunter2"));
    }

    #[test]
    fn values_are_percent_encoded() {
        assert_eq!(decoded("a%20b%C3%A9"), Some("a bé".to_owned()));
        for wrong in ["%", "%2", "%zz", "%ff", "%é"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
