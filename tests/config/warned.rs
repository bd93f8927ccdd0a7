//! Settings that are valid and never have an effect.

use raincheck::config::warnings::warnings;

use super::*;

fn warned(config: &Config) -> Vec<String> {
    warnings(config).map(|(_, text)| text).collect()
}

#[test]
fn what_cannot_have_an_effect_is_warned_of() {
    for (text, expected) in [
        (
            "[tasks]\ninput_timeout = '2h'",
            "[tasks]: 2h never comes: a call ends after its max_duration, 1h",
        ),
        (
            "[tasks]\ninput_timeout = '30m'\n[[tools]]\nname = 'a'\nmax_duration = '10m'",
            "[[tools]] #1: 30m never comes: a call ends after its max_duration, 10m",
        ),
        (
            "[telemetry.traces]\nratio = 0.5",
            "telemetry.traces.ratio does nothing here: has no effect without telemetry.traces.endpoint",
        ),
        (
            "[telemetry.traces]\nendpoint = 'http://127.0.0.1:4317/v1/traces'",
            "telemetry.traces.endpoint http://127.0.0.1:4317/v1/traces: collectors take gRPC at port 4317, and OTLP over \
             HTTP at 4318; for gRPC, write protocol = \"grpc\"",
        ),
        (
            "[telemetry.traces]\nendpoint = 'http://collector:4318'",
            "telemetry.traces.endpoint http://collector:4318/: it has no path, and collectors take spans at /v1/traces",
        ),
        (
            "[telemetry.traces]\nendpoint = 'http://collector:4318'\nprotocol = 'grpc'",
            "telemetry.traces.endpoint http://collector:4318/: collectors take OTLP over HTTP at port 4318, and gRPC at 4317",
        ),
        (
            "[telemetry.traces]\nendpoint = 'http://collector:4317/v1/traces'\nprotocol = 'grpc'",
            "telemetry.traces.endpoint http://collector:4317/v1/traces: its path does not count, because gRPC has its own",
        ),
        (
            "[events]\nwebhooks = 'public'",
            "events.webhooks does nothing here: has no effect without events.enabled",
        ),
    ] {
        assert_eq!(warned(&from_file(text)), [expected], "{text}");
    }
}

#[test]
fn what_has_an_effect_is_not_warned_of() {
    for text in [
        "[tasks]\ninput_timeout = '30m'",
        "[tasks]\ninput_timeout = '2h'\nmax_duration = '3h'\n[[tools]]\nname = 'a'\nretention = '2h'",
        "[telemetry.traces]\nendpoint = 'http://127.0.0.1:4318/v1/traces'\nratio = 0.5",
        "[telemetry.traces]\nendpoint = 'http://127.0.0.1:4317'\nprotocol = 'grpc'",
    ] {
        assert_eq!(warned(&from_file(text)), [""; 0], "{text}");
    }
    let of_platform = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")];
    let file = File::new("[telemetry.traces]\nratio = 0.5");
    let config = file.load(&upstream(), &of_platform).unwrap();
    assert_eq!(warned(&config), [""; 0]);
}
