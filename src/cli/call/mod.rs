//! `raincheck call`: calls a tool of any MCP server, as a client with Tasks. Progress, questions and hints go to standard
//! error, the result to standard output.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use self::dialogue::Dialogue;
use self::ending::{Ending, INTERRUPTED, Told};
use self::interrupt::Interrupts;
use self::person::Person;
use self::screen::Screen;
use self::server::{CalledServer, ServerArgs, arguments, call_request, capabilities};
use super::failure::{CommandFailure, complain};
use super::process::runtime;
use super::stdout;
use crate::base::io_reason::io_reason;
use crate::mcp::tools::Tool;
use crate::mcp::version::Era;
use crate::platform::environment::quoted;

mod dialogue;
mod ending;
mod form;
mod interrupt;
mod person;
mod rest;
mod screen;
mod server;

/// The time that the end of sessions and programs may take.
const STOPPING: Duration = Duration::from_secs(7);

const EXIT_CODES: &str = "Exit codes: 0 the tool has answered, or --detach left a task; 1 no answer, or an error; 2 a \
                          mistake in the command; 3 the tool says that it failed; 4 the task was cancelled by somebody \
                          else; 5 nobody here can answer the server's question; 130 Ctrl-C";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct CallArgs {
    #[arg(required_unless_present = "attach", help = "The name of the tool")]
    tool: Option<String>,
    #[arg(
        value_name = "JSON",
        default_value = "{}",
        help = format!("Its arguments, such as {}; - reads them from standard input", quoted(r#"{"city":"Kyoto"}"#))
    )]
    arguments: String,
    #[arg(
        long,
        help = "The server [default: the raincheck of the settings, else http://127.0.0.1:8440/mcp]"
    )]
    url: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "url",
        help = "The settings file of the raincheck to call"
    )]
    config: Option<PathBuf>,
    #[arg(
        long,
        value_name = "'NAME: VALUE'",
        help = "Sent with every request, such as 'Authorization: Bearer ..'; @FILE has such lines"
    )]
    header: Vec<String>,
    #[arg(long, help = "Print the id of the task and leave it alone")]
    detach: bool,
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = ["tool", "detach"],
        help = "Go on with a task that is there, in place of a call"
    )]
    attach: Option<String>,
    #[arg(
        long,
        value_name = "JSON",
        help = "The answer to the next question, or decline, for use without a terminal"
    )]
    answer: Vec<String>,
    #[arg(
        long,
        value_name = "FILE",
        help = "Where the result goes, in place of standard output"
    )]
    output: Option<PathBuf>,
    #[arg(long, help = "The whole result as one line of JSON")]
    json: bool,
    #[arg(
        last = true,
        value_name = "COMMAND",
        conflicts_with_all = ["url", "config", "detach", "attach"],
        help = "Or the server's command, such as -- npx -y some-server"
    )]
    command: Vec<String>,
}

pub(super) fn call(args: CallArgs) -> Result<ExitCode, CommandFailure> {
    let output = args.output.as_deref().map(Output::open).transpose()?;
    let as_json = args.json;
    let runtime = runtime()?;
    let ending = runtime.block_on(converse(args));
    // Do not wait for a person who was asked and has not typed.
    runtime.shutdown_background();
    let told = ending?.told(as_json);
    print(&told, output)?;
    if let Some(complaint) = &told.complaint {
        complain(complaint);
    }
    Ok(ExitCode::from(told.code))
}

async fn converse(args: CallArgs) -> Result<Ending, CommandFailure> {
    if let Some(url) = args.tool.as_deref().filter(|tool| tool.contains("://")) {
        return Err(CommandFailure::usage(format!(
            "{url} stands where the name of the tool belongs; write raincheck call TOOL --url {url}"
        )));
    }
    let person = Person::new(&args.answer)?;
    let given = match args.arguments.as_str() {
        "-" => io::read_to_string(io::stdin().lock().take(ARGUMENTS_MAX)).map_err(|error| {
            CommandFailure::usage(format!("standard input: {}", io_reason(&error)))
        })?,
        text => text.to_owned(),
    };
    // Programs of Windows begin a text with this character.
    let given = arguments(given.trim_start_matches('\u{feff}'))?;
    let jobs = TaskTracker::new();
    let mut interrupts = Interrupts::new(&jobs)
        .map_err(|error| CommandFailure::runtime(format!("no signals: {}", io_reason(&error))))?;
    let target = ServerArgs {
        url: args.url,
        config: args.config,
        headers: args.header,
        command: args.command,
    };
    let server = CalledServer::new(target, jobs)?;
    // With --detach, whoever attaches answers.
    let capabilities = capabilities(args.detach || person.answers());
    // In a terminal, an excerpt is what a person can read.
    let wants_whole = args.output.is_some() || !io::stdout().is_terminal();
    let name = args.tool.as_deref().unwrap_or_default();
    let prepared = async {
        let era = server.era().await?;
        refuse_era(era, args.detach, args.attach.is_some())?;
        let tool = match args.attach {
            Some(_) => Tool::default(),
            None => server.tool(name, &capabilities).await,
        };
        Ok::<_, CommandFailure>((era, tool))
    };
    let prepared = tokio::select! {
        prepared = prepared => prepared,
        () = interrupts.next() => Err(CommandFailure { code: INTERRUPTED, text: "nothing was called".into() }),
    };
    let ending = match prepared {
        Ok((era, tool)) => {
            let request = call_request(name, &given, &capabilities, (era, &tool));
            let mut dialogue = Dialogue {
                upstream: &server.upstream,
                era,
                person,
                screen: Screen::new(),
                interrupts,
            };
            let ending = match &args.attach {
                Some(id) => dialogue.attach(id, &request).await,
                None => dialogue.call(request, args.detach).await,
            };
            Ok(if wants_whole {
                dialogue.whole(ending).await
            } else {
                ending
            })
        }
        Err(failure) => Err(failure),
    };
    // Sessions and programs end, also after a failure.
    let _ = timeout(STOPPING, server.upstream.stop()).await;
    ending
}

/// A legacy server's tasks end with the session of the client that made them.
fn refuse_era(era: Era, detach: bool, attach: bool) -> Result<(), CommandFailure> {
    let flag = match (era, detach, attach) {
        (Era::Legacy, true, _) => "--detach",
        (Era::Legacy, _, true) => "--attach",
        (Era::Legacy | Era::Modern, ..) => return Ok(()),
    };
    Err(CommandFailure::runtime(format!(
        "{flag} needs a server with the Tasks extension (2026-07-28), and this one is older: put raincheck in front of it"
    )))
}

/// Longer arguments are a mistake.
const ARGUMENTS_MAX: u64 = 64 << 20;

/// The file of `--output`. It is opened before the call, so that a wrong path is reported before the tool has run.
struct Output {
    file: File,
    path: PathBuf,
    is_new: bool,
}

impl Output {
    fn open(path: &Path) -> Result<Self, CommandFailure> {
        let is_new = !path.exists();
        // The old content stays until there is a new one.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.map_err(|error| {
            let why = io_reason(&error);
            CommandFailure::usage(format!("--output {}: {why}", path.display()))
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            is_new,
        })
    }

    fn write(mut self, bytes: &[u8]) -> io::Result<()> {
        // Only now, with the new content at hand, the old content may go.
        self.file.set_len(0)?;
        self.file.write_all(bytes)
    }

    /// Nothing came: no empty file is left.
    fn forget(self) {
        if self.is_new {
            let _ = fs::remove_file(self.path);
        }
    }
}

fn print(told: &Told, output: Option<Output>) -> Result<(), CommandFailure> {
    if told.out.is_empty() {
        output.into_iter().for_each(Output::forget);
        return Ok(());
    }
    if let Some(output) = output {
        let path = output.path.display().to_string();
        return output.write(&told.out).map_err(|error| {
            CommandFailure::runtime(format!("--output {path}: {}", io_reason(&error)))
        });
    }
    if !io::stdout().is_terminal() {
        return stdout::print_bytes(&told.out);
    }
    // A terminal would act on bytes that are no text.
    let Ok(text) = std::str::from_utf8(&told.out) else {
        let bytes = told.out.len();
        return Err(CommandFailure::runtime(format!(
            "the result is {bytes} bytes that are no text: keep them with --output FILE"
        )));
    };
    stdout::print(text)
}
