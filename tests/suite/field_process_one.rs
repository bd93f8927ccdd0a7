//! raincheck as process 1 of a container, and as a subreaper: the kernel makes it the parent of what programs leave behind.

use std::fs;

use serde_json::json;

use crate::process::until_gone;
use crate::support::proxy::until_closed;
use crate::support::{Client, Config, PATIENCE, Proxy, eventually};

/// Makes itself a subreaper, and then becomes the rest of its command.
const SUBREAPER: [&str; 3] = [
    "python3",
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])",
];

/// Process 1 of a namespace of its own, which ends with this command.
const PROCESS_ONE: [&str; 4] = ["unshare", "--pid", "--fork", "--kill-child"];

const HELPERS: u32 = 20;

#[tokio::test]
async fn what_programs_leave_behind_is_reaped_by_a_subreaper() {
    is_reaped(&SUBREAPER).await;
}

#[tokio::test]
async fn what_programs_leave_behind_is_reaped_by_process_one() {
    if rustix::process::getuid().is_root() {
        is_reaped(&PROCESS_ONE).await;
    } else {
        println!("not root: no process was process 1");
    }
}

async fn is_reaped(below: &[&str]) {
    let config = Config::never().below(below).env("RUST_BACKTRACE", "0");
    let proxy = config.run("legacy").await;
    let client = Client::of(proxy.address());
    for _ in 0..2 {
        let call = client.call("leave_behind", json!({"count": HELPERS}));
        assert_eq!(call.await.into_text(), HELPERS.to_string());
    }
    eventually(PATIENCE, "no zombie is left", async || {
        let zombies = zombies(proxy.pid());
        if zombies.is_empty() {
            Ok(())
        } else {
            Err(format!("{zombies:?}"))
        }
    })
    .await;
    // The exit status of a program still reaches raincheck.
    let _ = client.call("exit", json!({})).await;
    proxy.until_said("status=\"exit status: 3\"", 1).await;
}

#[tokio::test]
async fn signals_reach_raincheck_and_its_exit_code_comes_back() {
    let mut proxy = subreaper().await;
    proxy.hang_up();
    proxy.until_said("raincheck::app::reload", 1).await;
    let ended = proxy.stop().await;
    assert_eq!(ended.code(), Some(0), "{}", proxy.log());
    // One SIGTERM, not two: a second one would have cut the drain short.
    assert!(proxy.log().contains("drained"), "{}", proxy.log());
}

#[tokio::test]
async fn raincheck_ends_with_the_process_that_reaps() {
    let mut proxy = subreaper().await;
    let address = proxy.address();
    let below = children(proxy.pid());
    let [raincheck] = below.as_slice() else {
        panic!("{below:?}");
    };
    proxy.kill();
    until_closed(address).await;
    // The kernel closes a listener before the process is a zombie.
    until_gone(PATIENCE, *raincheck).await;
}

#[tokio::test]
async fn how_raincheck_died_is_its_exit_code() {
    let mut proxy = subreaper().await;
    let raincheck = children(proxy.pid())[0].to_string();
    let killed = std::process::Command::new("kill")
        .args(["-KILL", &raincheck])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(proxy.ended().await.code(), Some(128 + 9));
}

async fn subreaper() -> Proxy {
    Config::never().below(&SUBREAPER).run("legacy").await
}

/// Processes by their parent, each with its state.
fn processes() -> Vec<(u32, u32, String)> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?.to_owned();
        Some((pid, words.next()?.parse().ok()?, state))
    })
    .collect()
}

fn children(parent: u32) -> Vec<u32> {
    let all = processes().into_iter();
    all.filter(|(_, its, _)| *its == parent)
        .map(|(pid, ..)| pid)
        .collect()
}

/// The descendants of a process that ended and were not waited for.
fn zombies(ancestor: u32) -> Vec<u32> {
    let all = processes();
    let mut family = vec![ancestor];
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        let of_it = all.iter().filter(|(_, its, _)| *its == parent);
        family.extend(of_it.map(|(pid, ..)| *pid));
        at += 1;
    }
    let is_zombie = |pid: &u32| all.iter().any(|(its, _, state)| its == pid && state == "Z");
    family.into_iter().filter(is_zombie).collect()
}
