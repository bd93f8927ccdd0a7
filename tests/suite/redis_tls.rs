//! A Redis that asks for TLS and for a certificate, as the configuration names them.

use serde_json::json;

use crate::authority::Authority;
use crate::support::{Config, Era, Rig, TempDir, in_both_eras};
use crate::tls_server::TlsServer;

in_both_eras!(a_task_is_kept_over_tls_with_the_configured_files);

async fn a_task_is_kept_over_tls_with_the_configured_files(era: Era) {
    let redis = TlsServer::start("yes");
    let (certificate, key) = redis.authority.issue();
    let roots = redis.authority.roots();
    let files = TempDir::new();
    let lines = format!(
        "roots = {:?}\ncertificate = {:?}\nkey = {:?}",
        write(&files, "our-roots", &roots),
        write(&files, "our-certificate", &certificate),
        write(&files, "our-key", &key),
    );
    let config = Config::always().redis(&redis.url);
    let rig = Rig::start(era, config.section("store.tls", &lines)).await;
    let client = rig.client();
    let task = client.call("echo", json!({"text": "sealed"})).await;
    let state = client.until(&task.into_task(), "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "sealed");
}

#[test]
fn roots_that_did_not_sign_are_told_in_one_line() {
    let redis = TlsServer::start("no");
    let roots = Authority::new().roots();
    let files = TempDir::new();
    let roots = write(&files, "other-roots", &roots);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["run", "--upstream", "http://127.0.0.1:9/mcp"])
        .args(["--listen", "127.0.0.1:0", "--store", &redis.url])
        .env("RAINCHECK_STORE__NAMESPACE", "suite")
        .env("RAINCHECK_STORE__TLS__ROOTS", roots)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    let told = told.trim_end();
    // The first line says what starts.
    let told = told.split_once('\n').map_or(told, |(_starting, told)| told);
    println!("{told}");
    assert!(told.contains("certificate"), "{told}");
    assert!(!told.contains('\n'), "{told}");
}

/// The library for Redis would ignore a file without a certificate, and blame the server's.
#[test]
fn a_file_of_roots_without_a_certificate_is_named() {
    let files = TempDir::new();
    let (_, key) = Authority::new().issue();
    let roots = write(&files, "our-key", &key);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["run", "--upstream", "http://127.0.0.1:9/mcp"])
        .args(["--listen", "127.0.0.1:0", "--store", "rediss://127.0.0.1:9"])
        .env("RAINCHECK_STORE__NAMESPACE", "suite")
        .env("RAINCHECK_STORE__TLS__ROOTS", &roots)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let expected = format!("raincheck: store.tls: {roots}: holds no certificate; ");
    assert!(told.contains(&expected), "{told}");
}

/// The path of a new file.
fn write(files: &TempDir, name: &str, text: &str) -> String {
    let path = files.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
