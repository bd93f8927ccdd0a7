//! The command line: its options, its commands, and how the process reports a failure.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::{Shell, generate};
use tracing::info;

use crate::base::io_reason::io_reason;
use crate::config::load::{Flags, environment, load};
use crate::config::{Config, ConfigError};
use crate::platform;
use crate::telemetry::log as logging;
use crate::tls;

mod call;
mod check;
mod child;
mod config;
mod demo;
mod failure;
mod inspect;
mod mistake;
mod operate;
mod process;
mod progress_bar;
mod run;
mod stdio;
mod stdout;
mod store;
mod table;
mod wrap;

#[cfg(fuzzing)]
pub use wrap::fuzzed as fuzzed_wrap;

use failure::{CommandFailure, complain};
use process::{log, logged};

/// A sidecar reverse proxy that gives unmodified MCP servers the Tasks extension.
#[derive(Debug, Parser)]
#[command(
    name = "raincheck",
    bin_name = "raincheck",
    version,
    arg_required_else_help = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve in front of an MCP server until stopped
    Run(ServeArgs),
    /// Be the wrapped server for the one client that launches this command: MCP on standard input
    /// and output
    Stdio(OneClient),
    /// Let a client's settings launch raincheck in front of one of their servers
    Wrap(wrap::WrapArgs),
    /// Show what the configuration means, and check that the server answers; exit code 0 or 1
    Check(CheckArgs),
    /// Call a tool of any MCP server: progress, questions, Ctrl-C cancels, tasks to leave and come back to
    Call(Box<call::CallArgs>),
    /// The tasks of a running raincheck and of its replicas, also those that ended: list, show, cancel, answer, run again
    Tasks(Box<operate::TasksArgs>),
    /// Pause tools of a running raincheck and of its replicas, and resume them
    Tools(operate::ToolsArgs),
    /// Check if a running raincheck is ready; exit code 0 or 1
    Health(operate::HealthArgs),
    /// Print settings: all of them with their meaning, or those that count here
    Config(ConfigArgs),
    /// Change what a store remembers
    Store(StoreArgs),
    /// Print the completions of a shell
    Completions { shell: Shell },
    /// Write the manual pages into a directory
    Man { directory: PathBuf },
    /// Become the server to wrap, and end with the raincheck that asked for it
    #[command(name = "__child", hide = true)]
    Child(child::ChildArgs),
    /// Show in this terminal what a task is: a slow server, the proxy and a client, in 15 seconds
    Demo,
}

#[derive(Debug, Args)]
struct ServeArgs {
    #[arg(
        long,
        value_name = "ADDRESS",
        help = "Where clients reach it [default: 127.0.0.1:8440]"
    )]
    listen: Option<String>,
    #[arg(
        long,
        value_name = "URL",
        help = "Where tasks live: redb:PATH, redis://HOST or memory: [default: a file of its own in \
                the state directory]"
    )]
    store: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct ConfigArgs {
    #[command(subcommand)]
    what: ConfigWhat,
}

#[derive(Debug, Subcommand)]
enum ConfigWhat {
    /// Every setting at its default, with its meaning: the beginning of a file of your own
    Example,
    /// The JSON Schema of the settings file, for editors
    Schema,
    /// The settings that count here, from file, environment and flags, as JSON without secrets
    Show(Box<ServeArgs>),
}

#[derive(Debug, Args)]
struct StoreArgs {
    #[command(subcommand)]
    what: StoreWhat,
}

#[derive(Debug, Subcommand)]
enum StoreWhat {
    /// The server has another address now: let its namespace in Redis serve the server of these settings
    Move(Box<MoveArgs>),
}

#[derive(Debug, Args)]
struct MoveArgs {
    #[arg(long, help = "Also while replicas in front of the old address live")]
    force: bool,
    #[arg(long, help = "JSON for scripts, in place of a sentence")]
    json: bool,
    #[command(flatten)]
    settings: ServeArgs,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[arg(long, help = "JSON for scripts, in place of a table")]
    json: bool,
    #[arg(
        long,
        value_name = "NAME[@VERSION]",
        help = "Say what this client gets for calls that take long, and why; the server is not asked"
    )]
    client: Option<String>,
    #[command(flatten)]
    settings: ServeArgs,
}

impl ServeArgs {
    /// For what does not depend on the server: without a file of settings, none need be named.
    fn with_any_server(mut self) -> Self {
        let Common {
            config,
            upstream,
            command,
            ..
        } = &mut self.common;
        if config.is_none() && command.is_empty() && upstream.is_none() {
            *upstream = Some("http://127.0.0.1:8000/mcp".to_owned());
        }
        self
    }
}

/// The settings of `raincheck stdio`, for the one client that started it.
#[derive(Debug, Args)]
struct OneClient {
    #[arg(
        long,
        value_name = "URL",
        help = "Where tasks live: redis://HOST, redb:PATH or memory: [default: a file of its own in \
                the state directory]"
    )]
    store: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    #[arg(
        long,
        value_name = "URL",
        help = "The server to wrap, such as http://127.0.0.1:8000/mcp or unix:/run/mcp.sock"
    )]
    upstream: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        help = "Everything else: see config.example.toml"
    )]
    config: Option<PathBuf>,
    #[arg(
        long,
        value_name = "NAME",
        help = "With Redis: the name of this service there, the same on all its replicas"
    )]
    namespace: Option<String>,
    #[arg(
        long,
        value_name = "FILTER",
        help = "What to log, such as debug or info,raincheck=debug [default: info]"
    )]
    log: Option<String>,
    #[arg(
        last = true,
        value_name = "COMMAND",
        help = "Or the server's command, such as -- npx -y some-server"
    )]
    command: Vec<String>,
}

impl ServeArgs {
    fn load(self) -> Result<Config, ConfigError> {
        load(&self.flags(), &environment())
    }

    fn flags(self) -> Flags {
        self.common.flags(Flags {
            listen: self.listen,
            store: self.store,
            ..Flags::default()
        })
    }
}

impl OneClient {
    fn load(self) -> Result<Config, ConfigError> {
        self.common.load(Flags {
            store: self.store,
            for_one_client: true,
            ..Flags::default()
        })
    }
}

impl Common {
    fn load(self, others: Flags) -> Result<Config, ConfigError> {
        load(&self.flags(others), &environment())
    }

    fn flags(self, others: Flags) -> Flags {
        Flags {
            config: self.config,
            upstream: self.upstream,
            namespace: self.namespace,
            log: self.log,
            command: self.command,
            ..others
        }
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return mistake::refuse(&error),
    };
    match dispatch(line.command) {
        Ok(code) => {
            logging::finish();
            code
        }
        Err(failure) => {
            complain(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}

/// Writes the manual pages into a folder, which is made if it is not there.
fn man(directory: &Path) -> Result<ExitCode, CommandFailure> {
    let made = std::fs::create_dir_all(directory);
    let written = made.and_then(|()| clap_mangen::generate_to(CommandLine::command(), directory));
    written.map_err(|error| {
        let why = io_reason(&error);
        CommandFailure::runtime(format!("{}: {why}", directory.display()))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn dispatch(command: Command) -> Result<ExitCode, CommandFailure> {
    if let Command::Child(line) = command {
        return child::run_program(&line);
    }
    if let Some(code) = prepare(&command)? {
        return Ok(code);
    }
    tls::install_provider();
    match command {
        Command::Child(_) => Ok(ExitCode::SUCCESS),
        Command::Wrap(line) => wrap::wrap(&line),
        Command::Run(settings) => {
            let process = run::ServerProcess::new()?;
            let file = settings.common.config.clone();
            let config = logged(settings.load())?;
            config.refuse_exposure()?;
            config.refuse_circle()?;
            first_line(&config, file.as_deref());
            run::run(process, config)
        }
        Command::Stdio(settings) => {
            let file = settings.common.config.clone();
            let config = logged(settings.load())?;
            first_line(&config, file.as_deref());
            stdio::serve(config)
        }
        Command::Check(CheckArgs {
            json,
            client,
            settings,
        }) => {
            if let Some(client) = client {
                let config = settings.with_any_server().load()?;
                return check::client(&config, &client, json);
            }
            let config = settings.load()?;
            log(&check::telemetry(&config.telemetry))?;
            check::check(&config, json)
        }
        Command::Completions { shell } => {
            let mut out = Vec::new();
            generate(shell, &mut CommandLine::command(), "raincheck", &mut out);
            stdout::print_bytes(&out)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { directory } => man(&directory),
        Command::Call(args) => call::call(*args),
        Command::Tasks(args) => operate::tasks(&args),
        Command::Tools(args) => operate::tools(&args),
        Command::Health(args) => operate::health(&args),
        Command::Store(args) => {
            let StoreWhat::Move(args) = args.what;
            let config = args.settings.load()?;
            log(&config.telemetry)?;
            store::move_to(&config, args.force, args.json)
        }
        Command::Config(args) => {
            match args.what {
                ConfigWhat::Example => config::example()?,
                ConfigWhat::Schema => config::schema()?,
                ConfigWhat::Show(settings) => config::show(&settings.flags())?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Demo => demo::demo(),
    }
}

/// Prepares this process for the command, as the system needs it. Returns an exit code if a child has run the command.
fn prepare(command: &Command) -> Result<Option<ExitCode>, CommandFailure> {
    let not_started =
        |error| CommandFailure::runtime(format!("not started: {}", io_reason(&error)));
    platform::process::keep_private().map_err(not_started)?;
    if starts_programs(command) {
        platform::process::tie_children().map_err(not_started)?;
    }
    if !matches!(command, Command::Run(_) | Command::Stdio(_)) {
        return Ok(None);
    }
    platform::reaper::run_in_child().map_err(not_started)
}

fn starts_programs(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_) | Command::Stdio(_) | Command::Check(_) | Command::Call(_) | Command::Demo
    )
}

/// Logs what starts, from which settings, before anything can fail.
fn first_line(config: &Config, file: Option<&Path>) {
    let file = file.map_or_else(|| "none".to_owned(), |file| file.display().to_string());
    info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %file,
        upstream = %config.upstream.server,
        store = %config.store.location,
        replica = %config.replica.id,
        "starting"
    );
    crate::config::warnings::log(config);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_mistake_is_one_line_with_what_to_do() {
        for (line, expected) in [
            (
                &["run", "--upstraem", "x"][..],
                "unexpected argument '--upstraem' found; did you mean --upstream?",
            ),
            (
                &["chek"],
                "unrecognized subcommand 'chek'; did you mean check?",
            ),
            (
                &["run", "npx", "server"],
                "unexpected argument 'npx' found; the server's command comes after --, as in: -- npx",
            ),
            (
                &["run", "http://127.0.0.1:8000/mcp"],
                "unexpected argument 'http://127.0.0.1:8000/mcp' found; did you mean --upstream http://127.0.0.1:8000/mcp?",
            ),
            (
                &["wrap"],
                "the following required arguments were not provided: <FILE>; raincheck wrap --help says what is",
            ),
            (
                &["wrap", "a.json", "b", "c"],
                "unexpected argument 'c' found; raincheck wrap --help says what is",
            ),
        ] {
            let words = ["raincheck"].iter().chain(line);
            let error = CommandLine::try_parse_from(words).unwrap_err();
            assert_eq!(mistake::one_line(&error), expected);
        }
    }
}
