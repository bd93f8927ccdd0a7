//! One address for the servers of a pair each: behind it every replica finds its own, as sidecars do on their loopback.
//!
//! Who connects is told by the owner of the other end's socket, which the kernel knows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;

use crate::eventually::try_eventually;
use crate::scripted::Listening;

/// The server of each process, by its pid.
type Rooms = Arc<Mutex<BTreeMap<u32, SocketAddr>>>;

/// A listener before the servers of a pair each. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Door {
    listening: Listening,
    rooms: Rooms,
}

impl Door {
    pub(crate) async fn open() -> Self {
        let rooms = Rooms::default();
        let known = Arc::clone(&rooms);
        let listening = Listening::start(move |stream| lead_in(stream, Arc::clone(&known)));
        Self {
            listening: listening.await,
            rooms,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    /// From now on the connections of this process go to this server.
    pub(crate) fn lead(&self, pid: u32, server: SocketAddr) {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.insert(pid, server);
    }
}

async fn lead_in(mut stream: TcpStream, rooms: Rooms) {
    let (Ok(peer), Ok(here)) = (stream.peer_addr(), stream.local_addr()) else {
        return;
    };
    let Some(socket) = socket_of(peer.port(), here.port()) else {
        return;
    };
    // A replica connects as soon as it starts, maybe before its pid is known here.
    let room = async || {
        let known = rooms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let owner = known.iter().find(|(pid, _)| owns(**pid, &socket));
        owner.map(|(_, address)| *address)
    };
    let Ok(server) = try_eventually(std::time::Duration::from_secs(4), room).await else {
        return;
    };
    let Ok(mut inside) = TcpStream::connect(server).await else {
        return;
    };
    let _ = inside.set_nodelay(true);
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut inside).await;
}

/// What the kernel calls the socket at this local port that is connected to the other port. Connections to other ports,
/// and those that have ended, may have the same local port.
fn socket_of(local: u16, remote: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let [local, remote] = [local, remote].map(|port| format!(":{port:04X}"));
    let inode = table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&local) && fields.get(2)?.ends_with(&remote);
        (is_it && *fields.get(3)? == "01").then(|| fields.get(9).copied())?
    });
    Some(format!("socket:[{}]", inode?))
}

fn owns(pid: u32, socket: &str) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let links = open.into_iter().flatten();
    let mut links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link == Path::new(socket))
}
