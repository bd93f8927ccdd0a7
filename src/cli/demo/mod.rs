//! `raincheck demo`: a slow legacy server, the proxy in front of it and a client with Tasks, in one process.
//! The demo checks everything that it prints, and exits with 0 only if all of it was true.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::client::DemoClient;
use self::server::DemoServer;
use self::terminal::Terminal;
use self::wire::at;
use super::failure::CommandFailure;
use super::process::{log, runtime};
use super::progress_bar::whole;
use crate::app::App;
use crate::base::io_reason::io_reason;
use crate::config::Config;
use crate::config::load::{Flags, load};

mod call;
mod client;
pub(super) mod server;
mod state;
mod terminal;
mod tools;
mod wire;

/// The longest wait for any step of the demo.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) fn demo() -> Result<ExitCode, CommandFailure> {
    runtime()?.block_on(async {
        let tracker = TaskTracker::new();
        let stop = CancellationToken::new();
        let told = tell(&tracker, &stop).await;
        stop.cancel();
        tracker.close();
        // The demo has shown everything, so a slow end is no failure.
        let _ = timeout(PATIENCE, tracker.wait()).await;
        told
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn tell(tracker: &TaskTracker, stop: &CancellationToken) -> Result<(), CommandFailure> {
    let server = DemoServer::start(tracker, stop.child_token())
        .await
        .map_err(|e| {
            CommandFailure::runtime(format!("no loopback port to listen on: {}", io_reason(&e)))
        })?;
    let config = config(&server.url())?;
    log(&config.telemetry)?;
    let app = App::build(config, None)
        .await
        .map_err(|e| CommandFailure::runtime(e.to_string()))?;
    let address = app
        .address()
        .ok_or_else(|| CommandFailure::runtime("the demo has no address"))?;
    let shutdown = stop.child_token();
    tracker.spawn(async move { app.serve(shutdown).await });

    let mut story = Story {
        terminal: Terminal::new(),
        client: DemoClient::new(address),
        server,
    };
    let terminal = &story.terminal;
    terminal.title("Three in one process");
    let url = story.server.url();
    terminal.say(&format!(
        "A slow MCP server of 2025 at {url}: it knows nothing of Tasks."
    ));
    terminal.say(&format!(
        "raincheck in front of it at http://{address}/mcp."
    ));
    terminal.say("A client of 2026 that declares Tasks on every request.");
    story
        .tell()
        .await
        .map_err(|text| CommandFailure::runtime(format!("the demo went wrong: {text}")))
}

/// The proxy's configuration. Short times keep the demo short: a task after 300 ms, polled every 200 ms.
fn config(upstream: &str) -> Result<Config, CommandFailure> {
    let flags = Flags {
        upstream: Some(upstream.to_owned()),
        listen: Some("127.0.0.1:0".into()),
        store: Some("memory:".into()),
        log: Some("error".into()),
        ..Flags::default()
    };
    let settings = [
        ("RAINCHECK_TASKS__GRACE_WINDOW", "300ms"),
        ("RAINCHECK_TASKS__POLL_INTERVAL", "200ms"),
        ("RAINCHECK_TASKS__MAX_DURATION", "5m"),
        ("RAINCHECK_DRAIN__GRACE", "1s"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(load(&flags, &settings)?)
}

struct Story {
    terminal: Terminal,
    client: DemoClient,
    server: DemoServer,
}

impl Story {
    async fn tell(&mut self) -> Result<(), String> {
        self.discover().await?;
        self.progress().await?;
        self.question().await?;
        self.cancel().await?;
        self.terminal
            .title("All of this was checked, not only printed.");
        self.terminal
            .say("In front of your own server: raincheck run --upstream http://127.0.0.1:8000/mcp");
        Ok(())
    }

    async fn discover(&mut self) -> Result<(), String> {
        self.terminal.title("1. The server has learned Tasks");
        let found = self.client.discover().await?;
        let tasks = at(
            &found,
            "/capabilities/extensions/io.modelcontextprotocol~1tasks",
        );
        check(tasks == &json!({}), || {
            format!("no Tasks were advertised: {found}")
        })?;
        self.terminal.say(
            "-> server/discover          <- revision 2026-07-28, extension io.modelcontextprotocol/tasks",
        );
        Ok(())
    }

    async fn progress(&mut self) -> Result<(), String> {
        self.terminal.title("2. A slow call becomes a task");
        let arguments = json!({"seconds": 4, "steps": 8});
        let task = self.create("build_report", arguments).await?;
        let started = Instant::now();
        let ended = self.follow(&task, "working").await?;
        let seconds = Instant::now()
            .saturating_duration_since(started)
            .as_secs_f32();
        expect_text(&ended, "The report has 8 chapters.")?;
        self.terminal.say(&format!(
            "-> tasks/get                <- completed after {seconds:.1} s: \"The report has 8 chapters.\""
        ));
        Ok(())
    }

    async fn question(&mut self) -> Result<(), String> {
        self.terminal.title("3. A question in the middle of a call");
        let task = self.create("ask_name", json!({})).await?;
        let asking = self.follow(&task, "working").await?;
        let (key, request) = at(&asking, "/inputRequests")
            .as_object()
            .and_then(|requests| requests.iter().next())
            .ok_or_else(|| format!("the task asks nothing: {asking}"))?;
        let question = at(request, "/params/message").as_str().unwrap_or_default();
        check(at(request, "/method") == "elicitation/create", || {
            format!("not the server's question: {request}")
        })?;
        self.terminal.say(&format!(
            "-> tasks/get                <- input_required: the server asks \"{question}\""
        ));
        let name = self.terminal.ask(question, "Ada").await;
        self.client
            .answer(&task, key, json!({"name": name}))
            .await?;
        self.terminal
            .say("-> tasks/update             <- noted, and on its way to the server");
        let ended = self.follow(&task, "working").await?;
        let greeting = format!("Hello, {name}!");
        expect_text(&ended, &greeting)?;
        self.terminal.say(&format!(
            "-> tasks/get                <- completed: \"{greeting}\""
        ));
        Ok(())
    }

    async fn cancel(&mut self) -> Result<(), String> {
        self.terminal.title("4. A call that nobody needs any more");
        let task = self.create("sleep_forever", json!({})).await?;
        self.client.cancel(&task).await?;
        let ended = self.client.get(&task).await?;
        check(at(&ended, "/status") == "cancelled", || {
            format!("not cancelled: {ended}")
        })?;
        self.terminal
            .say("-> tasks/cancel             <- cancelled");
        // The notification goes out after the task was cancelled, so it may come a moment later.
        timeout(Duration::from_secs(2), self.server.told_to_cancel())
            .await
            .map_err(|_| "the server was not told of the cancel")?;
        self.terminal
            .say("The server got notifications/cancelled and stopped working.");
        Ok(())
    }

    /// Calls a tool that is slow enough for a task.
    async fn create(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let started = Instant::now();
        let answer = self.client.call(tool, arguments).await?;
        let ms = Instant::now()
            .saturating_duration_since(started)
            .as_millis();
        let task = at(&answer, "/taskId").as_str();
        let task = task.filter(|_| at(&answer, "/resultType") == "task");
        let task = task.ok_or_else(|| format!("{tool} did not become a task: {answer}"))?;
        let short: String = task.chars().take(8).collect();
        let call = format!("-> tools/call {tool}");
        self.terminal.say(&format!(
            "{call:<27} <- a task, {short}.., after {ms} ms; the client is free"
        ));
        Ok(task.to_owned())
    }

    /// Polls while the task has this status and shows its progress.
    async fn follow(&mut self, task: &str, status: &str) -> Result<Value, String> {
        let started = Instant::now();
        loop {
            let seen = self.client.get(task).await?;
            let progress = at(&seen, "/_meta/io.raincheck~1progress");
            if let (Some(done), Some(total)) = (
                at(progress, "/progress").as_f64(),
                at(progress, "/total").as_f64(),
            ) {
                let message = at(&seen, "/statusMessage").as_str().unwrap_or_default();
                self.terminal.progress(whole(done), whole(total), message);
            }
            if at(&seen, "/status") != status {
                self.terminal.progress_done();
                return Ok(seen);
            }
            // A task that hangs must end the demo with an error.
            check(
                Instant::now().saturating_duration_since(started) < PATIENCE,
                || format!("the task does not go on: {seen}"),
            )?;
            // The suggested interval grows with the task's age; a progress bar keeps the first interval.
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn expect_text(task: &Value, text: &str) -> Result<(), String> {
    let is_right = at(task, "/status") == "completed" && at(task, "/result/content/0/text") == text;
    check(is_right, || format!("not completed with {text:?}: {task}"))
}

fn check(is_right: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(otherwise()) }
}
