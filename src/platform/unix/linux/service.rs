//! The manager of the service that this process is, which is systemd: it receives the state as `sd_notify` sends it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::warn;

/// The variable with the address of the manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The longest wait for a manager whose queue is full, as it may be while many services start.
const PATIENCE: Duration = Duration::from_secs(2);

static IS_READY: AtomicBool = AtomicBool::new(false);

/// Sends the state, such as `READY=1`, if a manager waits for it. A manager that does not take it is no reason to end.
///
/// Only a process that was ready stops for its manager: a session of `raincheck stdio` may run in the service of another program.
pub fn report(state: &str) {
    if state.starts_with("READY=1") {
        IS_READY.store(true, Ordering::Relaxed);
    } else if !IS_READY.load(Ordering::Relaxed) {
        return;
    }
    // No setting of raincheck: systemd gives it to every service. Programs of the server do not get it, because they get named
    // variables only.
    let mut variables = std::env::vars_os();
    if let Some((_, address)) = variables.find(|(name, _)| name == SOCKET)
        && let Err(error) = send(&address, state)
    {
        warn!(%error, state = state.lines().next(), "the manager of the service does not take the state");
    }
}

fn send(address: &OsString, state: &str) -> io::Result<()> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(OsStr::new(address))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that is busy may take a while, and must not hold the process up.
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_addresses_are_reached() {
        let unique = format!("raincheck-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&unique).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(&format!("@{unique}").into(), "READY=1").unwrap();
        let path = std::env::temp_dir().join(&unique);
        let other = UnixDatagram::bind(&path).unwrap();
        send(&path.clone().into(), "READY=1").unwrap();
        std::fs::remove_file(&path).unwrap();
        for manager in [manager, other] {
            let mut state = [0; 16];
            let length = manager.recv(&mut state).unwrap();
            assert_eq!(&state[..length], b"READY=1");
        }
        assert!(send(&"".into(), "READY=1").is_err());
    }
}
