//! Who may ask: reads the credential of a request and says which caller it is.
//!
//! The rules are pure: `bearer` (the header), `callers` (who owns what), `challenge` (what a refused client is told). `tokens`
//! reads the file of tokens.

pub mod authenticator;
mod bearer;
pub mod callers;
pub mod challenge;
pub mod identity;
pub mod tokens;
