//! TCP ports for servers that a test starts and that cannot be asked to choose their own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Below the ports from which the system takes those of connections and of listeners that name none: while a server is down, no
/// connection may take its port. The scripts of `tests/` take theirs from 20,000.
const FIRST: u128 = 10_000;
const COUNT: u128 = 10_000;

/// A port of loopback that no other test has while this value lives. Without that, a test whose server has not begun to listen
/// could come to the server of another test, or to one that only looks whether the port is free.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    number: u16,
    /// The UDP port of the same number. The system gives it to one process at a time, and takes it back when the process ends; a
    /// server on TCP is not in its way.
    _held: UdpSocket,
}

impl ReservedPort {
    pub(crate) fn new() -> Self {
        let mut tries = std::iter::repeat_with(|| {
            let number = FIRST + uuid::Uuid::new_v4().as_u128() % COUNT;
            let number = u16::try_from(number).unwrap_or_default();
            let held = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            // Software that is no test may listen there.
            TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            Some(Self {
                number,
                _held: held,
            })
        });
        tries.by_ref().take(100).flatten().next().expect("a port")
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}
