//! OTLP over gRPC: the same messages as over HTTP, in gRPC's frames.

use std::fmt;

use bytes::Bytes;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HeaderMap, TE};

/// The method that takes spans. gRPC has no other path.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A status of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GrpcStatus(u32);

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl GrpcStatus {
    pub(super) const OK: Self = Self(0);

    /// The status in the trailers, or in the headers of an answer without a message. `None`: the answer is not of gRPC.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get("grpc-status")?.to_str().ok()?;
        text.parse().ok().map(Self)
    }

    /// Returns `true` for the statuses after which OTLP demands another attempt.
    pub(super) fn is_temporary(self, headers: &HeaderMap) -> bool {
        // A collector that is full and says when it has room gives details. Without them it will not have any.
        let is_full_for_now = self.0 == 8 && headers.contains_key("grpc-status-details-bin");
        matches!(self.0, 1 | 4 | 10 | 11 | 14 | 15) || is_full_for_now
    }
}

impl fmt::Display for GrpcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = usize::try_from(self.0).unwrap_or(usize::MAX);
        let name = NAMES.get(place).unwrap_or(&"unknown");
        write!(f, "gRPC {} {name}", self.0)
    }
}

/// A request with one message.
pub(super) fn request(message: Vec<u8>) -> hyper::http::Result<Request<Bytes>> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut body = message;
    let [a, b, c, d] = length.to_be_bytes();
    body.splice(..0, [0, a, b, c, d]);
    Request::post(METHOD)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(body.into())
}

/// The message in an answer. Empty if it is compressed, which nobody asked for, or not whole.
pub(super) fn message(body: &[u8]) -> &[u8] {
    match body.split_first_chunk::<PREFIX>() {
        Some(([0, a, b, c, d], rest)) => {
            let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).ok();
            length
                .and_then(|length| rest.get(..length))
                .unwrap_or_default()
        }
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_message_is_behind_its_length() {
        let sent = request(vec![7; 258]).unwrap().into_body();
        assert_eq!(sent[..PREFIX], [0, 0, 0, 1, 2]);
        assert_eq!(message(&sent), [7; 258]);
        for broken in [&[][..], &[0; 4], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 2, 1]] {
            assert!(message(broken).is_empty(), "{broken:?}");
        }
    }

    #[test]
    fn a_full_collector_is_asked_again_if_it_says_that_it_will_have_room() {
        let with = |status: &'static str| {
            HeaderMap::from_iter([(
                "grpc-status".parse().unwrap(),
                HeaderValue::from_static(status),
            )])
        };
        let temporary = |headers: &HeaderMap| {
            let status = GrpcStatus::of(headers).unwrap();
            status.is_temporary(headers)
        };
        assert!(temporary(&with("14")) && !temporary(&with("16")));
        let mut full = with("8");
        assert!(!temporary(&full));
        full.insert("grpc-status-details-bin", HeaderValue::from_static("CAg"));
        assert!(temporary(&full));
        assert_eq!(GrpcStatus::of(&HeaderMap::new()), None);
        assert_eq!(GrpcStatus(16).to_string(), "gRPC 16 UNAUTHENTICATED");
        assert_eq!(GrpcStatus(99).to_string(), "gRPC 99 unknown");
    }
}
