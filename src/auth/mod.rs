//! Authentication: reads the credential of a request and determines its caller.
//!
//! The rules are pure: `bearer` (the header), `jwt` (a signed token), `algorithm` and `keys` (the verification of a
//! token), `refetch` (when keys are fetched), `callers` (which caller owns what), `challenge` (the answer to a
//! refused client), `public` (where clients find the issuers of tokens). `tokens` reads the file of tokens; `issuer`
//! and `fetch` fetch keys.

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
