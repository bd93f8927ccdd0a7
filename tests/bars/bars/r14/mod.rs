//! R14: memory is bounded, whatever the server sends and however slowly clients read.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::listeners::{deaf, idle};
use crate::book::Book;
use crate::faulty::Faulty;
use crate::memory;
use crate::rig::follow::follow;
use crate::rig::solo::Solo;
use crate::rig::stdio::Program;
use crate::{Asked, Report};

mod listeners;

const MEBIBYTE: u64 = 1 << 20;

/// How far memory may grow while it floods.
const GROWTH_MAX: u64 = 200;

/// A flood has this long to be over, in a development build on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// The floods, what is allowed for a result, and the reason of the end; none: it completes.
const FLOODS: [(&str, &str, Option<&str>); 7] = [
    ("flood-of-progress", "32MiB", None),
    ("flood-of-junk", "32MiB", None),
    ("flood-of-json", "32MiB", Some("upstream_too_large")),
    ("line-of-300-mib", "32MiB", Some("upstream_too_large")),
    ("result-of-64-mib", "32MiB", Some("upstream_too_large")),
    ("event-of-64-mib", "32MiB", Some("upstream_too_large")),
    ("result-of-31-mib", "32MiB", None),
];

pub(super) async fn run(asked: Asked, report: &mut Report) {
    for (place, (flood, allowed, reason)) in FLOODS.into_iter().enumerate() {
        let era =
            ["legacy", "modern"][(place + usize::from(asked.seed.first().is_multiple_of(2))) % 2];
        let book = Book::default();
        let nowhere = ([127, 0, 0, 1], 9).into();
        let server = Faulty::start(book, nowhere).await;
        let config = format!(
            "[upstream]\nera = \"{era}\"\n[tasks]\nmode = \"always\"\npoll_interval = \"100ms\"\n\
             max_duration = \"600s\"\nresult_bytes_max = \"{allowed}\"\n"
        );
        let mut solo = Solo::start(&config, Some(&server.url())).await;
        let arguments = json!({"fault": flood, "token": flood});
        let name = format!("{flood}_of_{allowed}_allowed");
        measured(&mut solo, (&name, "work", arguments, reason), report).await;
    }
    for (name, tool, bytes, reason) in [
        (
            "stdio_line_of_300_mib",
            "long",
            300_u32,
            Some("upstream_too_large"),
        ),
        ("stdio_flood_on_standard_error", "stderr", 200, None),
    ] {
        let program = Program::new("legacy");
        let config = format!(
            "{}[tasks]\nmode = \"always\"\npoll_interval = \"100ms\"\nmax_duration = \"600s\"\n",
            program.upstream()
        );
        let mut solo = Solo::start(&config, None).await;
        let arguments = json!({"bytes": u64::from(bytes) * MEBIBYTE, "token": name});
        measured(&mut solo, (name, tool, arguments, reason), report).await;
    }
    deaf(report).await;
    idle(asked, report).await;
}

/// One call, and the most memory that was held meanwhile.
async fn measured(
    solo: &mut Solo,
    (name, tool, arguments, reason): (&str, &str, Value, Option<&str>),
    report: &mut Report,
) {
    let pid = solo.replica.pid().expect("a replica that runs");
    memory::forget_peak(pid);
    let before = memory::resident(pid);
    let heard = solo.client.call(tool, arguments).await;
    let clients = [solo.client.clone()];
    let ended = match heard.task() {
        None => format!("not announced: {heard:?}"),
        Some(id) => {
            let seen = follow(&clients, &id, Instant::now() + PATIENCE).await;
            let end = seen.end.as_ref().map(|(end, _)| end);
            let data = end.map(|end| &end["error"]["data"]["io.raincheck/reason"]);
            match (seen.status(), data.and_then(Value::as_str)) {
                ("completed", _) if reason.is_none() => String::new(),
                ("failed", given) if reason.is_some() && given == reason => String::new(),
                (status, given) => format!("{status} {given:?}, must be {reason:?}"),
            }
        }
    };
    if !ended.is_empty() {
        report.breaks(format!("{name}: {ended}"));
    }
    grown(pid, before, name, report);
    solo.inspect(report);
}

fn grown(pid: u32, before: u64, name: &str, report: &mut Report) {
    let grown = memory::peak(pid).saturating_sub(before) / MEBIBYTE;
    report.at_most(&format!("mib_{name}"), grown, GROWTH_MAX);
}
