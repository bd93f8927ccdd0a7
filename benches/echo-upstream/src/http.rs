//! Which part of the server answers an HTTP request.

use std::convert::Infallible;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::value::RawValue;

use crate::answer::{Body, Dialect, json, refusal, result};
use crate::request::Message;
use crate::{legacy, stats, tools};

pub(crate) async fn handle(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    Ok(answer(request).await)
}

async fn answer(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/stats" {
        return json(StatusCode::OK, stats::to_json());
    }
    if head.uri.path() == "/v1/traces" {
        // As a collector of OpenTelemetry does that has nothing to say.
        return match body.collect().await {
            Ok(_spans) => json(StatusCode::OK, ""),
            Err(_) => json(StatusCode::BAD_REQUEST, ""),
        };
    }
    let Some(dialect) = dialect(head.uri.path()) else {
        return refusal(StatusCode::NOT_FOUND, "null", -32601, "no such path");
    };
    if head.method == Method::DELETE && !dialect.is_modern {
        return legacy::close(&head.headers);
    }
    if head.method != Method::POST {
        return json(StatusCode::METHOD_NOT_ALLOWED, "");
    }
    let Ok(body) = body.collect().await else {
        return refusal(StatusCode::BAD_REQUEST, "null", -32700, "body");
    };
    let body = body.to_bytes();
    match serde_json::from_slice(&body) {
        Ok(message) => dispatch(message, &head.headers, dialect).await,
        Err(_) => refusal(StatusCode::BAD_REQUEST, "null", -32700, "parse error"),
    }
}

fn dialect(path: &str) -> Option<Dialect> {
    let (is_modern, streams) = match path {
        "/mcp" | "/mcp/" => (true, false),
        "/mcp-sse" => (true, true),
        "/legacy" => (false, true),
        "/legacy-json" => (false, false),
        _ => return None,
    };
    Some(Dialect { is_modern, streams })
}

async fn dispatch(message: Message<'_>, headers: &HeaderMap, dialect: Dialect) -> Response<Body> {
    let Some(id) = message.id.map(RawValue::get) else {
        let mut accepted = json(StatusCode::ACCEPTED, "");
        accepted.headers_mut().remove(CONTENT_TYPE);
        return accepted;
    };
    let request = stats::count_request();
    let checked = if dialect.is_modern {
        check_headers(&message, headers, id)
    } else if message.method == "initialize" {
        return legacy::open(id, request, dialect);
    } else {
        legacy::check(headers, id)
    };
    if let Err(refusal) = checked {
        return *refusal;
    }
    match (message.method, message.params) {
        ("ping", _) => dialect.respond(result(id, "{}")),
        ("server/discover", _) if dialect.is_modern => dialect.respond(result(id, DISCOVERED)),
        ("tools/list", _) => dialect.respond(result(id, &tools::list(dialect))),
        ("tools/call", Some(params)) => tools::call(id, params, dialect).await,
        ("tools/call", None) => refusal(StatusCode::BAD_REQUEST, id, -32602, "params"),
        _ => dialect.refuse(StatusCode::NOT_FOUND, id, -32601, "Method not found"),
    }
}

const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"echo-upstream","version":"0.1.0"}}}"#;

/// Refuses a modern request whose headers differ from its body. So a proxy that drops or changes them is found out.
fn check_headers(
    message: &Message<'_>,
    headers: &HeaderMap,
    id: &str,
) -> Result<(), Box<Response<Body>>> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let name = message.params.as_ref().and_then(|params| params.name);
    let fault = if header("mcp-protocol-version") != Some("2026-07-28")
        || header("mcp-method") != Some(message.method)
    {
        "header mismatch"
    } else if message.method == "tools/call" && header("mcp-name") != name {
        "header mismatch: Mcp-Name"
    } else {
        return Ok(());
    };
    let refusal = refusal(StatusCode::BAD_REQUEST, id, -32020, fault);
    Err(Box::new(refusal))
}
