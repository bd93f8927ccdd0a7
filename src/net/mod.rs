//! Sockets and addresses: connections on threads of their own, requests to one address, and the way through a proxy.

pub mod connection_threads;
mod http2;
pub mod http_address;
pub mod public_address;
pub mod socket;
pub mod tunnel;
