//! What makes raincheck ask a program for its era again, which costs a process.

use super::*;
use crate::directory::TempDir;

/// Modern in its first process, and then nothing that knows a method. Lists its starts.
const SERVER: &str = r#"import json, sys
with open(sys.argv[1], "a") as starts:
    starts.write("started\n")
with open(sys.argv[1]) as starts:
    is_modern = len(starts.readlines()) < 2
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "no"}}
    if message["method"] == "initialize":
        answer = {"error": {"code": -32603, "message": "no"}}
    elif message["method"] == "server/discover" and is_modern:
        answer = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"#;

#[tokio::test]
async fn a_program_is_not_doubted_for_a_tool_that_it_has_not_and_needs_a_handshake_to_be_legacy() {
    let folder = TempDir::new();
    let file = folder.path().join("starts");
    let starts = || std::fs::read_to_string(&file).unwrap().lines().count();
    let mut program = program("modern");
    let path = file.to_str().unwrap().to_owned();
    program.arguments = vec!["-c".into(), SERVER.into(), path];
    let upstream = run(&Settings {
        command: Some(program),
        ..Settings::default()
    });
    assert_eq!(upstream.era(None).await.unwrap(), Era::Modern);
    let refused = outcome_of(upstream.begin(Era::Modern, call_with("none", "{}"))).await;
    assert!(refused.contains("-32601"), "{refused}");
    assert_eq!(starts(), 1, "what was asked is what is called");
    upstream.doubt_era(None).await;
    assert_eq!(starts(), 3, "asked what it is, and whether it is legacy");
    assert_eq!(upstream.known_era(), Some(Era::Modern));
}
