//! The beginning of a body, which shows its form where the head does not say it, and bodies of JSON.

use std::error::Error;
use std::{io, iter};

use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use crate::mcp::error::Failure;
use crate::mcp::flaw::Flaw;
use crate::upstream::failures::{INVALID, RESET, TOO_LARGE};
use crate::upstream::http::ResponseBody;

/// Some servers begin a body with a byte order mark, and HTTP clients skip it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The number of bytes that show the form of a body.
const UNNAMED_MAX: usize = 8;

/// The form of a body whose head does not name one.
pub(super) enum FoundForm {
    Json,
    Events,
}

impl FoundForm {
    /// `None`: neither, or not yet.
    pub(super) fn of(begun: &[u8]) -> Option<Self> {
        let text = begun.strip_prefix(BYTE_ORDER_MARK).unwrap_or(begun);
        let text = text.trim_ascii_start();
        let fields: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];
        if matches!(text, [b'{' | b'[', ..]) {
            Some(Self::Json)
        } else {
            let is_event = fields.iter().any(|field| text.starts_with(field));
            is_event.then_some(Self::Events)
        }
    }
}

/// Reads as much of a body as shows its form, or cannot be one.
pub(super) async fn begin(body: &mut ResponseBody, bytes_max: usize) -> Vec<u8> {
    let mut begun = Vec::new();
    // A body of another kind shows it with its first characters, and may have no end.
    while FoundForm::of(&begun).is_none()
        && begun.trim_ascii().len() < UNNAMED_MAX
        && begun.len() < bytes_max
    {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        begun.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    begun
}

/// Reads a JSON body into one buffer, so that a large answer is not held twice. `text`: what was read of it already.
pub(super) async fn read_json(
    body: &mut ResponseBody,
    mut text: Vec<u8>,
    bytes_max: usize,
) -> Result<String, Failure> {
    let length = body.size_hint().exact().unwrap_or_default();
    let length = usize::try_from(length).map_err(|_| TOO_LARGE)?;
    // A body that announces too much is refused before it takes any memory.
    if length > bytes_max {
        return Err(TOO_LARGE);
    }
    text.reserve_exact(length);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| of_body(&*error))?;
        let data = frame.into_data().unwrap_or_default();
        if data.len() > bytes_max.saturating_sub(text.len()) {
            return Err(TOO_LARGE);
        }
        text.extend_from_slice(&data);
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        INVALID.because(Flaw::Utf8 { at })
    })
}

/// Returns the failure of a body that was cut short, or that is no valid HTTP.
fn of_body(error: &(dyn Error + 'static)) -> Failure {
    let errors = iter::successors(Some(error), |&error| error.source());
    // A connection that ends is the cause of another error. An error of the decoder, whose end comes too early in a body that is
    // whole, has no cause.
    let is_cut = errors.skip(1).any(|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(
            kind,
            Some(
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
            )
        )
    });
    if is_cut { RESET } else { INVALID }
}
