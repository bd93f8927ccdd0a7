//! The part of the protocol that raincheck reads. The rest passes unread. Nothing in this module awaits.

pub mod answer;
pub mod base64;
pub mod changes;
pub mod elicitation;
pub mod envelope;
pub mod error;
pub mod excerpt;
pub mod flaw;
pub mod headers;
pub mod hex;
pub mod input;
pub mod json;
mod members;
pub mod meta;
pub mod params;
pub mod request;
pub mod result;
pub mod scan;
pub mod slice;
pub mod sse;
pub mod tasks_2025;
pub mod tool_list;
pub mod tools;
pub mod trace_context;
pub mod trace_id;
pub mod version;
pub mod words;
