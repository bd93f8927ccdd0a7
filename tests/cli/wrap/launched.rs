//! What a client launches after its settings were changed: it works, with the entry's variables and headers.

use std::net::TcpListener;
use std::process::Child;

use serde_json::Value;

use super::*;

/// A client starts what the file says; ended with the test.
struct Launched(Child);

impl Launched {
    /// With the variables that clients pass on, and the entry's own.
    fn new(settings: &Settings, name: &str) -> Self {
        let all: Value = serde_json::from_str(&settings.text()).unwrap();
        let entry = &all["mcpServers"][name];
        let words = entry["args"].as_array().unwrap();
        let env = entry["env"].as_object().unwrap();
        let child = Command::new(entry["command"].as_str().unwrap())
            .args(words.iter().map(|word| word.as_str().unwrap()))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(
                env.iter()
                    .map(|(name, value)| (name, value.as_str().unwrap())),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut launched = Self(child);
        let input = launched.0.stdin.as_mut().unwrap();
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        writeln!(input, "{hello}").unwrap();
        launched
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The entry's variables reach the program that was wrapped.
#[test]
fn a_wrapped_command_works() {
    let server = r#"import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": os.environ["KEY"], "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
"#;
    let settings = serde_json::json!({"mcpServers": {"a": {
        "command": "python3", "args": ["-c", server], "env": {"KEY": "the value"}}}});
    let settings = Settings::new(&settings.to_string());
    settings.ok(&["a", "--yes"]);
    let mut launched = Launched::new(&settings, "a");
    let mut answer = String::new();
    let mut output = BufReader::new(launched.0.stdout.take().unwrap());
    output.read_line(&mut answer).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        answer["result"]["serverInfo"]["name"], "the value",
        "{answer}"
    );
}

/// The entry's headers reach the server that was wrapped.
#[test]
fn a_wrapped_address_is_asked_with_its_headers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let settings = serde_json::json!({"mcpServers": {"a": {
        "url": url, "headers": {"Authorization": "Bearer the-token", "X-Api-Key": "k"}}}});
    let settings = Settings::new(&settings.to_string());
    settings.ok(&["a", "--yes"]);
    let launched = Launched::new(&settings, "a");
    let head = BufReader::new(listener.accept().unwrap().0)
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.is_empty())
        .map(|line| line.to_lowercase())
        .collect::<Vec<_>>();
    drop(launched);
    assert!(head[0].starts_with("post /mcp "), "{head:?}");
    for header in ["authorization: bearer the-token", "x-api-key: k"] {
        assert!(head.iter().any(|line| line == header), "{head:?}");
    }
}
