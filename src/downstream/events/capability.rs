//! The capability of events in `server/discover`. Pure.

use crate::mcp::json::{Object, Writer};
use crate::mcp::meta::EVENTS_EXTENSION;

/// Where clients of an earlier draft look for the capability.
const AT_THE_TOP: &str = "events";

/// Adds the capability in both forms that clients read, where the server does not declare it itself: as an extension,
/// as the specification has it, and beside the other capabilities, where `ChatGPT` looks.
pub(in crate::downstream) fn add(
    (theirs, out): (&Object<'_>, &mut Writer),
    (their_extensions, extensions): (&Object<'_>, &mut Writer),
) {
    if !theirs.contains(AT_THE_TOP) {
        out.raw(AT_THE_TOP, "{}");
    }
    if !their_extensions.contains(EVENTS_EXTENSION) {
        extensions.raw(EVENTS_EXTENSION, "{}");
    }
}
