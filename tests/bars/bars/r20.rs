//! R20: a program that raincheck runs ends, breaks, floods and babbles; its calls end as listed, the next have another
//! process, and none outlives our own SIGKILL, whenever it comes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Heard;
use crate::eventually::try_eventually;
use crate::ports::ReservedPort;
use crate::rig::follow::follow;
use crate::rig::process;
use crate::rig::solo::Solo;
use crate::rig::stdio::Program;
use crate::{Asked, Report};

/// How a call of that tool ends: completed with this text, or failed for that reason, in any case with effect unknown.
enum End {
    Text(&'static str),
    Failed(&'static str),
}

/// Every way to go wrong that the fixture knows.
fn faults() -> Vec<(&'static str, Value, End)> {
    use End::{Failed, Text};
    const RESET: End = Failed("upstream_reset");
    let mebibytes = |n: u32| json!({"bytes": n << 20});
    vec![
        ("exit", json!({}), RESET),
        ("segv", json!({}), RESET),
        ("unfinished", json!({}), RESET),
        ("close_stdout", json!({}), RESET),
        ("long", mebibytes(33), Failed("upstream_too_large")),
        ("garbage", json!({}), Text("clean")),
        ("stderr", mebibytes(10), Text("loud")),
        ("no_newline", json!({}), Text("")),
        ("twice", json!({}), Text("first")),
        ("wrong_id", json!({}), Failed("deadline")),
    ]
}

/// A start, an end, and what both cost a busy machine.
const SLACK: Duration = Duration::from_secs(10);

/// An orphan has this long to end.
const LEAVE: Duration = Duration::from_secs(2);

pub(super) async fn run(mut asked: Asked, report: &mut Report) {
    for mode in ["legacy", "modern"] {
        let program = Program::new(mode);
        let mut solo = Solo::start(&config(&program, ""), None).await;
        for round in 0..asked.of(5, 1) {
            for (tool, arguments, end) in faults() {
                let token = format!("r20-{mode}-{tool}-{round}");
                let found = trial(&solo, &program, (tool, arguments, end), &token).await;
                report.count("trials", 1_u32);
                let wrong = found.err().map(|why| format!("{token}: {why}"));
                report.zero("wrong", wrong.into_iter().collect());
            }
        }
        solo.inspect(report);
    }
    dies(report).await;
    for round in 0..asked.of(30, 6) {
        let mode = ["legacy", "modern", "stubborn"][usize::try_from(round % 3).unwrap_or(0)];
        kill(mode, asked.seed.millis(0, 2_000), report).await;
    }
}

fn config(program: &Program, more: &str) -> String {
    format!(
        "{}[tasks]\nmode = \"always\"\npoll_interval = \"100ms\"\nmax_duration = \"60s\"\n\
         [[tools]]\nname = \"wrong_id\"\nmax_duration = \"2s\"\n\
         [[tools]]\nname = [\"echo\", \"orphan\"]\nmode = \"never\"\n{more}",
        program.upstream()
    )
}

async fn trial(
    solo: &Solo,
    program: &Program,
    (tool, mut arguments, end): (&str, Value, End),
    token: &str,
) -> Result<(), String> {
    arguments["token"] = json!(token);
    let heard = solo.client.call(tool, arguments).await;
    let id = heard
        .task()
        .ok_or_else(|| format!("not announced: {heard:?}"))?;
    let clients = [solo.client.clone()];
    let seen = follow(&clients, &id, Instant::now() + SLACK).await;
    let ended = seen.end.as_ref().map(|(end, _)| end).ok_or("still open")?;
    let data = &ended["error"]["data"];
    let is_right = match end {
        End::Text(text) => {
            let said = ended["result"]["content"][0]["text"]
                .as_str()
                .unwrap_or_default();
            ended["status"] == "completed" && said == text
        }
        End::Failed(reason) => {
            data["io.raincheck/reason"] == reason && data["io.raincheck/effect"] == "unknown"
        }
    };
    if !is_right || !seen.wrong.is_empty() {
        return Err(format!("{seen:?}"));
    }
    let calls = program.calls(token);
    if calls != 1 {
        return Err(format!("called {calls} times"));
    }
    echo(solo, token).await
}

/// The next call has a process that answers.
async fn echo(solo: &Solo, text: &str) -> Result<(), String> {
    let heard = solo.client.call("echo", json!({"text": text})).await;
    match &heard {
        Heard::Result(result) if result["content"][0]["text"] == text => Ok(()),
        Heard::Result(_) | Heard::Error { .. } | Heard::Broken(_) => {
            Err(format!("the next call was answered {heard:?}"))
        }
    }
}

/// A program that cannot be run makes us not ready, until it can be.
async fn dies(report: &mut Report) {
    let program = Program::new("dies");
    let port = ReservedPort::new();
    let probes = port.address();
    let more = format!("[admin]\nprobes = \"{probes}\"\n");
    let mut solo = Solo::start(&config(&program, &more), None).await;
    let clients = [solo.client.clone()];
    let mut wrong = Vec::new();
    for n in 0..5 {
        let arguments = json!({"nonce": "n", "token": format!("dies-{n}")});
        let heard = solo.client.call("hold", arguments).await;
        let Some(id) = heard.task() else {
            wrong.push(format!("not announced: {heard:?}"));
            continue;
        };
        let seen = follow(&clients, &id, Instant::now() + 2 * SLACK).await;
        let end = seen.end.map(|(end, _)| end).unwrap_or_default();
        let data = &end["error"]["data"];
        if data["io.raincheck/reason"] != "upstream_unreachable"
            || data["io.raincheck/effect"] != "none"
        {
            wrong.push(format!("{end}"));
        }
    }
    if !is_ready(probes, false).await {
        wrong.push("ready before a program that cannot be run".to_owned());
    }
    program.let_live();
    if !is_ready(probes, true).await {
        wrong.push("not ready although the program can be run".to_owned());
    }
    wrong.extend(echo(&solo, "on").await.err());
    report.zero("wrong", wrong);
    solo.inspect(report);
}

/// Whether readiness comes to be so.
async fn is_ready(probes: std::net::SocketAddr, wanted: bool) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let ready = async || {
        let mut said = Vec::new();
        if let Ok(mut stream) = tokio::net::TcpStream::connect(probes).await {
            let request = "GET /readyz HTTP/1.1\r\nhost: probes\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = stream.read_to_end(&mut said).await;
        }
        said.starts_with(b"HTTP/1.1 200") == wanted
    };
    try_eventually(Duration::from_secs(40), ready).await.is_ok()
}

/// SIGKILL at a random moment of a process's life: its start, its work, its end.
async fn kill(mode: &'static str, after: Duration, report: &mut Report) {
    let program = Program::new(mode);
    let mut solo = Solo::start(&config(&program, ""), None).await;
    let client = solo.client.clone();
    let work = tokio::spawn(async move {
        let orphan = client.call("orphan", json!({})).await;
        let _ = client.call("hold", json!({"nonce": "n"})).await;
        let _ = client.call("stderr", json!({"bytes": 10 << 20})).await;
        let _ = client.call("exit", json!({})).await;
        orphan
    });
    tokio::time::sleep(after).await;
    let before = program.processes().len();
    solo.replica.kill();
    report.count("killed_with_a_process", u64::from(before > 0));
    let left = program.left_after(LEAVE).await;
    let left: Vec<String> = left.iter().map(|pid| format!("{mode}: {pid}")).collect();
    report.zero("orphans", left);
    // What the program itself started is known where it said so in time.
    if let Ok(Heard::Result(result)) = work.await {
        let pid = result["content"][0]["text"].as_str();
        if let Some(pid) = pid.and_then(|pid| pid.parse().ok())
            && crate::process::is_there(pid)
        {
            report.count("left_by_the_program", 1_u32);
            process::end(pid);
        }
    }
}
