//! From `[telemetry.traces]` and the variables of OpenTelemetry to where spans go. The settings count before the
//! variables, except those that switch all of it off.

use std::path::PathBuf;

use super::file_telemetry::Traces;
use super::headers;
use super::otel::{Variables, uri};
use super::problem::Problem;
use super::ratio::Ratio;
use super::settings::TraceSettings;
use super::trace_protocol::TraceProtocol;

/// The name of this service if neither the settings nor the environment give one.
const SERVICE: &str = "raincheck";

/// Where spans go. `None`: nowhere. `replica` names this process among others.
pub(super) fn traces(
    written: Traces,
    environment: &[(String, String)],
    replica: &str,
) -> Result<Option<TraceSettings>, Problem> {
    let variables = Variables::new(environment);
    let endpoint = match &written.endpoint {
        Some(endpoint) => Some(uri(endpoint).ok_or_else(|| {
            let text = "is not where a collector is; write \"http://127.0.0.1:4318/v1/traces\"";
            Problem::new("telemetry.traces.endpoint", text)
        })?),
        None => variables.endpoint(written.protocol),
    };
    let Some(endpoint) = endpoint.filter(|_| !variables.switch_off()) else {
        return Ok(None);
    };
    // The protocol of the variables is that of their endpoint.
    let protocol = written.protocol.unwrap_or_else(|| match &written.endpoint {
        Some(_) => TraceProtocol::Http,
        None => variables.protocol(),
    });
    let is_https = endpoint.scheme_str() == Some("https");
    if written.roots.is_some() && !is_https {
        let text = "only counts where telemetry.traces.endpoint begins with \"https\"";
        return Err(Problem::new("telemetry.traces.roots", text));
    }
    let mut own = headers::of("telemetry.traces.headers", &written.headers)?;
    // Headers of another collector must not go to this one.
    if written.endpoint.is_none() && own.is_empty() {
        own = variables.headers();
    }
    let mut resource = variables.resource();
    let named = written.service_name.filter(|name| !name.is_empty());
    let service = named
        .or_else(|| variables.service())
        .unwrap_or_else(|| SERVICE.to_owned());
    resource.retain(|(name, _)| name != "service.name");
    resource.insert(0, ("service.name".to_owned(), service));
    for (name, text) in [
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", replica),
    ] {
        // The variables of OpenTelemetry may have set these already, and their values count.
        if !resource.iter().any(|(known, _)| known == name) {
            resource.push((name.to_owned(), text.to_owned()));
        }
    }
    let roots = written.roots.map(PathBuf::from);
    Ok(Some(TraceSettings {
        endpoint,
        protocol,
        headers: own,
        // A file of the environment may be meant for another program, so it is no mistake without TLS.
        roots: roots.or_else(|| variables.roots().filter(|_| is_https)),
        ratio: written
            .ratio
            .or_else(|| variables.ratio())
            .unwrap_or(Ratio::ALL),
        resource,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<TraceSettings> {
        of_file(Traces::default(), variables)
    }

    fn of_file(written: Traces, variables: &[(&str, &str)]) -> Option<TraceSettings> {
        let owned = variables.iter();
        let environment: Vec<_> = owned
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        traces(written, &environment, "one").unwrap()
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn the_variables_say_where_spans_go() {
        assert_eq!(of(&[]), None);
        let endpoint = |variables: &[_]| of(variables).unwrap().endpoint.to_string();
        assert_eq!(endpoint(&[BASE]), "http://collector:4318/v1/traces");
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/x?y=1");
        assert_eq!(endpoint(&[BASE, whole]), "https://c/x?y=1");
        let usual = ("OTEL_TRACES_EXPORTER", "otlp");
        assert_eq!(endpoint(&[usual]), "http://localhost:4318/v1/traces");
        for off in [
            ("OTEL_SDK_DISABLED", "TRUE"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            assert_eq!(of(&[BASE, off]), None, "{off:?}");
        }
    }

    #[test]
    fn a_collector_for_grpc_has_no_path_and_a_port_of_its_own() {
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let found = of(&[BASE, grpc]).unwrap();
        assert_eq!(found.endpoint.to_string(), "http://collector:4318/");
        assert_eq!(found.protocol, TraceProtocol::Grpc);
        let usual = of(&[("OTEL_TRACES_EXPORTER", "otlp"), grpc]).unwrap();
        assert_eq!(usual.endpoint.to_string(), "http://localhost:4317/");
        let written = |protocol, endpoint: Option<&str>| {
            let written = Traces {
                protocol,
                endpoint: endpoint.map(str::to_owned),
                ..Traces::default()
            };
            let found = of_file(written, &[BASE, grpc]).unwrap();
            (found.protocol, found.endpoint.to_string())
        };
        // The variables describe their own endpoint only.
        let own = "http://own/v1/traces";
        let (http, grpc) = (TraceProtocol::Http, TraceProtocol::Grpc);
        assert_eq!(written(None, Some(own)), (http, own.to_owned()));
        assert_eq!(written(Some(grpc), Some(own)), (grpc, own.to_owned()));
        let base = "http://collector:4318/v1/traces".to_owned();
        assert_eq!(written(Some(http), None), (http, base));
    }

    #[test]
    fn the_variables_say_who_exports() {
        let found = of(&[
            BASE,
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1%3D"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=no,deployment.environment.name=prod",
            ),
            ("OTEL_SERVICE_NAME", "tools"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let found = found.unwrap();
        let headers = found.headers.iter();
        let headers: Vec<_> = headers
            .map(|header| (header.name.as_str(), header.value.expose()))
            .collect();
        assert_eq!(headers, [("api-key", "a b"), ("x", "1=")]);
        assert!(!format!("{found:?}").contains("a b"));
        let resource = found.resource.iter();
        let resource: Vec<_> = resource.map(|(name, text)| (&**name, &**text)).collect();
        assert_eq!(resource[0], ("service.name", "tools"));
        assert!(resource.contains(&("deployment.environment.name", "prod")));
        assert!(resource.contains(&("service.instance.id", "one")));
        assert_eq!(
            resource.iter().filter(|it| it.0 == "service.name").count(),
            1
        );
        assert!((found.ratio.as_f64() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn the_settings_count_before_the_variables() {
        let written = Traces {
            endpoint: Some("http://own/v1/traces".into()),
            ratio: Some(Ratio::ALL),
            service_name: Some("own".into()),
            ..Traces::default()
        };
        let secret = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=x");
        let service = ("OTEL_SERVICE_NAME", "other");
        let found = of_file(written, &[BASE, secret, service]).unwrap();
        assert_eq!(found.endpoint.to_string(), "http://own/v1/traces");
        assert_eq!(found.resource[0].1, "own");
        // A secret goes to the collector that it is for.
        assert!(found.headers.is_empty());
        let wrong = Traces {
            endpoint: Some("collector:4318".into()),
            ..Traces::default()
        };
        assert!(traces(wrong, &[], "one").is_err());
    }
}
