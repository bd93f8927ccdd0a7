//! What is HTTP, and a refusal.

use std::time::Duration;

use super::super::script::{Act, Asked, CANARY, chunked, head, json, page, reply, text};
use super::{BUSY, COMPLETED, End, Fault, INVALID, NOT_RUN, failed, fault, want};

const UNAUTHORIZED: super::Want = failed("upstream_unauthorized", "none");
const UNKNOWN: super::Want = failed("upstream_http", "unknown");

pub(super) fn faults() -> Vec<Fault> {
    let mut all = waits();
    all.extend(statuses());
    all.extend(redirects());
    all.extend(sessions());
    all
}

/// 429 and 503 that say when to come back.
fn waits() -> Vec<Fault> {
    vec![
        fault("busy-once", COMPLETED.sent(2).says(BUSY), |asked| {
            later(asked, 1, 429, "1")
        }),
        fault("away-once", COMPLETED.sent(2).says(BUSY), |asked| {
            later(asked, 1, 503, "1")
        }),
        fault("busy-twice", COMPLETED.sent(3), |asked| {
            later(asked, 2, 429, "0")
        }),
        fault("away-until-a-date", COMPLETED.sent(2).says(BUSY), |asked| {
            if asked.nth > 1 {
                return asked.good();
            }
            let headers = [
                ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("retry-after", "Sun, 06 Nov 1994 08:49:38 GMT"),
            ];
            vec![page(503, &headers)]
        }),
        fault("busy-for-good", NOT_RUN.sent(3), |asked| {
            later(asked, u32::MAX, 429, "0")
        }),
        fault("away-for-good", NOT_RUN.sent(3).says(BUSY), |asked| {
            later(asked, u32::MAX, 503, "1")
        }),
        fault("busy-for-an-hour", NOT_RUN, |asked| {
            later(asked, u32::MAX, 503, "3600")
        }),
        fault("busy-who-knows-until-when", NOT_RUN, |_| {
            vec![page(429, &[])]
        }),
        fault("away-who-knows-until-when", UNKNOWN, |_| {
            vec![page(503, &[])]
        }),
        fault("busy-with-an-error", COMPLETED.sent(2), |asked| {
            if asked.nth > 1 {
                return asked.good();
            }
            let error = format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32000,"message":"{CANARY}"}}}}"#,
                asked.id
            );
            vec![json(429, &[("retry-after", "0")], &error)]
        }),
    ]
}

fn later(asked: &Asked, times: u32, status: u16, wait: &str) -> Vec<Act> {
    if asked.nth > times {
        return asked.good();
    }
    vec![page(status, &[("retry-after", wait)])]
}

fn statuses() -> Vec<Fault> {
    vec![
        fault("unauthorized", UNAUTHORIZED, |_| {
            vec![page(
                401,
                &[("www-authenticate", "Bearer realm=\"CANARY-5d1e\"")],
            )]
        }),
        fault("forbidden", UNAUTHORIZED, |_| vec![page(403, &[])]),
        fault("unauthorized-with-an-error", UNAUTHORIZED, |asked| {
            let error = format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32001,"message":"{CANARY}"}}}}"#,
                asked.id
            );
            vec![json(401, &[("www-authenticate", "Bearer")], &error)]
        }),
        fault("unauthorized-as-oauth-says", UNAUTHORIZED, |_| {
            vec![json(
                401,
                &[],
                &format!(r#"{{"error":"invalid_token","error_description":"{CANARY}"}}"#),
            )]
        }),
        fault("method-not-allowed", NOT_RUN, |_| vec![page(405, &[])]),
        fault("request-timeout", UNKNOWN, |_| vec![page(408, &[])]),
        fault("conflict", UNKNOWN, |_| vec![page(409, &[])]),
        fault("gone", UNKNOWN, |_| vec![page(410, &[])]),
        fault("unprocessable", UNKNOWN, |_| vec![page(422, &[])]),
        fault("server-error", UNKNOWN, |_| vec![page(500, &[])]),
        fault("server-error-repeatable", UNKNOWN, |_| vec![page(500, &[])]).by("read"),
        fault("bad-gateway", UNKNOWN, |_| vec![page(502, &[])]),
        fault("gateway-timeout", UNKNOWN, |_| vec![page(504, &[])]),
        fault("status-of-nobody", UNKNOWN, |_| vec![page(599, &[])]),
        fault("error-of-its-own", want(End::Refused(-32050)), |asked| {
            vec![json(500, &[], &own_error(&asked.id))]
        }),
        fault("error-without-id", want(End::Refused(-32050)), |_| {
            vec![json(400, &[], &own_error("null"))]
        }),
        fault(
            "error-without-id-in-peace",
            want(End::Refused(-32050)),
            |_| vec![json(200, &[], &own_error("null"))],
        ),
        fault("error-page-without-end", UNKNOWN, |_| {
            let head = head(500, "text/html", &[("transfer-encoding", "chunked")]);
            let bytes = chunked(CANARY.repeat(1000));
            vec![
                text(&format!("{head}\r\n")),
                Act::endless(bytes, Duration::ZERO),
            ]
        }),
        fault("accepted", INVALID, |_| vec![reply(202, "", &[], b"")]),
        fault("no-content", INVALID, |_| {
            vec![text("HTTP/1.1 204 No Content\r\n\r\n")]
        }),
    ]
}

fn own_error(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32050,"message":"own words"}}}}"#)
}

fn redirects() -> Vec<Fault> {
    vec![
        fault("redirect-301", UNKNOWN, |asked| redirect(asked, 301)),
        fault("redirect-302", UNKNOWN, |asked| redirect(asked, 302)),
        fault("redirect-303", UNKNOWN, |asked| redirect(asked, 303)),
        fault("redirect-307", UNKNOWN, |asked| redirect(asked, 307)),
        fault("redirect-308", UNKNOWN, |asked| redirect(asked, 308)),
    ]
}

fn redirect(asked: &Asked, status: u16) -> Vec<Act> {
    vec![page(status, &[("location", &asked.trap)])]
}

/// A session that the server no longer knows refused the call before it ran.
fn sessions() -> Vec<Fault> {
    vec![
        fault("session-lost", COMPLETED.sent(2), |asked| {
            if asked.nth > 1 {
                return asked.good();
            }
            asked.without_session(page(404, &[]))
        })
        .modern(NOT_RUN),
        fault("session-lost-again", NOT_RUN.sent(2), |asked| asked.without_session(page(404, &[]))).only_legacy(),
        fault("session-lost-in-a-dialect", COMPLETED.sent(2), |asked| {
            if asked.nth > 1 {
                return asked.good();
            }
            let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
            asked.without_session(json(400, &[], error))
        })
        .only_legacy(),
        // Not the session: the call was taken, and answered so.
        fault("not-found-for-good", want(End::Refused(-32601)), |asked| {
            let error = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"own words"}}}}"#, asked.id);
            vec![json(404, &[], &error)]
        })
        .only_modern(),
    ]
}
