//! What the manager of a service, such as systemd, receives from raincheck.

use tokio::net::{TcpStream, UnixDatagram};

use crate::support::{Config, Era, PATIENCE, Rig, TempDir, within};

/// Waits for the next state.
async fn next(manager: &UnixDatagram) -> String {
    let mut state = [0; 512];
    let received = within(PATIENCE, "a state", manager.recv(&mut state)).await;
    String::from_utf8_lossy(&state[..received.unwrap()]).into_owned()
}

#[tokio::test]
async fn a_service_is_ready_when_clients_can_connect_and_stops_with_the_drain() {
    let directory = TempDir::new();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let config = Config::always().env("NOTIFY_SOCKET", path.to_str().unwrap());
    let ready = async {
        let state = next(&manager).await;
        let address = state
            .strip_prefix("READY=1\nSTATUS=serving ")
            .unwrap_or_else(|| panic!("{state}"));
        let address = address.strip_suffix("/mcp").unwrap();
        TcpStream::connect(address)
            .await
            .expect("the listener is bound");
    };
    let (mut rig, ()) = tokio::join!(Rig::start(Era::Modern, config), ready);
    rig.proxy.terminate();
    let state = next(&manager).await;
    assert!(state.starts_with("STOPPING=1\nSTATUS=draining"), "{state}");
    assert!(rig.proxy.ended().await.success());
}

#[tokio::test]
async fn a_manager_that_is_not_there_is_no_error() {
    let config = Config::always().env("NOTIFY_SOCKET", "/nonexistent/notify");
    let mut rig = Rig::start(Era::Modern, config).await;
    rig.proxy.terminate();
    assert!(rig.proxy.ended().await.success());
}
