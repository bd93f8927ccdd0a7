//! TCP ports for servers that a test starts and that cannot be asked to choose their own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// The first port. The system chooses the ports of connections, and of listeners that name none, above the last one: while a server is
/// down, no connection takes its port. The scripts of `tests/` choose ports from 20,000.
const FIRST: u128 = 10_000;
const COUNT: u128 = 10_000;

/// A port of loopback that no other test has while this value lives. Without the reservation, a client could connect to a server of
/// another test, because that test chose the same port before this test's server listened there.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    number: u16,
    /// The UDP port of the same number. The system gives a UDP port to one process at a time, and takes it back when the process ends. A
    /// server on TCP does not need that port.
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
