//! Who may ask: reads the credential of a request and says which caller it is.
//!
//! The rules are pure: `bearer` (the header), `jwt` (a signed token), `algorithm` and `keys` (what verifies it), `refetch` (when
//! keys are fetched), `callers` (who owns what), `challenge` (what a refused client is told),
//! `public` (where clients find out who issues tokens). `tokens` reads the file of tokens;
//! `issuer` and `fetch` fetch keys.

pub mod algorithm;
pub mod authenticator;
mod bearer;
pub mod callers;
pub mod challenge;
pub mod fetch;
pub mod identity;
pub mod issuer;
mod jwt;
mod keys;
pub mod public;
mod refetch;
pub mod tokens;
mod verified;
