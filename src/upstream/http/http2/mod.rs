//! HTTP/2 to the wrapped server, with prior knowledge: many requests share a connection, so that an open call needs
//! no connection of its own.

mod attending;
pub(super) mod connections;
pub(super) mod first_byte;
pub(super) mod handshake;
mod sending;
