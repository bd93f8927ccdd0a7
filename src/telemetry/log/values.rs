//! Values in lines that are no events, as events have them.

use super::fields::quoted;
use super::form::LineForm;
use crate::base::printable::{SHORT_MAX, printable_json};
use crate::base::utc::digits;
use crate::mcp::json::quote;
use crate::mcp::words::{all_words, is_plain_ascii};

/// Returns true for a text that is logged as it is, and has no quote and no backslash: so are nearly all.
#[inline]
pub(super) fn is_short_and_plain(text: &str) -> bool {
    text.len() <= SHORT_MAX && is_plain(text)
}

/// Returns true if a quoted text has every byte as it is.
#[inline]
fn is_plain(text: &str) -> bool {
    all_words(text.as_bytes(), is_plain_ascii)
}

/// Writes a text in quotes.
pub(super) fn say(out: &mut Vec<u8>, form: LineForm, value: &str) {
    // Nearly all values.
    if is_plain(value) {
        return say_plain(out, value);
    }
    let text = match form {
        LineForm::Json => printable_json(&quote(value)).into_owned(),
        LineForm::Text | LineForm::Coloured => {
            let mut text = String::new();
            // A string takes everything.
            quoted(&mut text, value).unwrap_or_default();
            text
        }
    };
    out.extend_from_slice(text.as_bytes());
}

/// The same of a text that has every byte as it is.
pub(super) fn say_plain(out: &mut Vec<u8>, value: &str) {
    out.push(b'"');
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

/// Writes a number, which is nearly always 0.
pub(super) fn whole(out: &mut Vec<u8>, number: u64) {
    match number {
        0 => out.push(b'0'),
        number => out.extend_from_slice(number.to_string().as_bytes()),
    }
}

/// Writes the last digits of a number.
pub(super) fn last_digits<const PLACES: usize>(out: &mut Vec<u8>, number: u64) {
    let mut places = [b'0'; PLACES];
    digits(&mut places, number);
    out.extend_from_slice(&places);
}
