//! `raincheck wrap`: lets a client's settings file launch raincheck in front of a server that it names.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::failure::CommandFailure;
use super::table::{short, table};
use crate::base::io_reason::io_reason;
use crate::base::printable::printable_lines;
use crate::config::load::{allowed_variables, environment};

mod change;
mod difference;
mod document;
mod entry;
mod file;
mod masked;
mod options;
mod program;
mod undo;
mod unwrapped;

#[cfg(fuzzing)]
pub use document::fuzzed;

use change::FileChange;
use difference::difference;
use document::{Document, NamedServer, WantedServer, shown};
use entry::{Launch, Runs};
use file::SettingsFile;
use options::LaunchOptions;

#[derive(Debug, Args)]
pub(super) struct WrapArgs {
    #[arg(help = "A JSON file with mcpServers or servers, such as .mcp.json or .vscode/mcp.json")]
    file: PathBuf,
    #[arg(help = "The server to wrap; without it, the servers in the file are listed")]
    name: Option<String>,
    #[arg(
        long,
        value_name = "DIR",
        help = "A server of that project only, as Claude Code keeps them in ~/.claude.json"
    )]
    project: Option<PathBuf>,
    #[arg(long, help = "Put the server back as it was before")]
    undo: bool,
    #[arg(long, help = "Do not ask")]
    yes: bool,
    #[arg(long, conflicts_with = "yes", help = "Show the change, make none")]
    dry_run: bool,
    #[command(flatten)]
    options: LaunchOptions,
}

impl WrapArgs {
    /// An option that is only for a change of one server.
    fn flag_of_a_change(&self) -> Option<&'static str> {
        let options = &self.options;
        let flags = [
            ("--undo", self.undo),
            ("--yes", self.yes),
            ("--dry-run", self.dry_run),
            ("--store", options.store.is_some()),
            ("--namespace", options.namespace.is_some()),
            ("--config", options.config.is_some()),
        ];
        let given = flags.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(flag, _)| flag)
    }
}

pub(super) fn wrap(line: &WrapArgs) -> Result<ExitCode, CommandFailure> {
    let file = SettingsFile::read(&line.file).map_err(|why| located(&line.file, &why))?;
    // Checked after the read, so that a file that is missing is reported as missing.
    if let Some(kind) = line.file.extension().filter(|kind| !is_json(kind)) {
        let kind = short(&kind.to_string_lossy().to_uppercase());
        let why = format!(
            "is {kind}, and only JSON is edited: there, put `raincheck stdio --` before the server's command"
        );
        return Err(located(&line.file, &why));
    }
    let project = line.project.as_deref().map(absolute);
    let project = project.as_deref();
    let Some(name) = &line.name else {
        if let Some(flag) = line.flag_of_a_change() {
            let names = names(&file, project);
            return Err(CommandFailure::usage(format!(
                "{flag} needs the name of a server{names}"
            )));
        }
        return list(&file, project).map_err(|why| located(&line.file, &why));
    };
    let wanted = WantedServer { name, project };
    let change = if line.undo {
        undo::change(&file, wanted)
    } else {
        wrapped(&file, wanted, &line.options)
    };
    match change.map_err(|why| located(&line.file, &why))? {
        FileChange::None(why) => {
            say(&format!("{}: {}\n", shown(name), why));
            Ok(ExitCode::SUCCESS)
        }
        FileChange::Text { text, notes } => apply(line, &file, &text, &notes),
    }
}

/// The absolute path of a folder, because clients name folders by their absolute paths.
fn absolute(folder: &Path) -> String {
    let path = folder.canonicalize();
    // A project may be in the file although its folder is gone.
    let path = path.as_deref().unwrap_or(folder);
    path.to_string_lossy().into_owned()
}

/// Returns `true` if a file with this ending may hold JSON. Only the endings of TOML and YAML rule JSON out.
fn is_json(ending: &OsStr) -> bool {
    !["toml", "yaml", "yml"]
        .iter()
        .any(|other| ending.eq_ignore_ascii_case(other))
}

fn wrapped(
    file: &SettingsFile,
    wanted: WantedServer<'_>,
    options: &LaunchOptions,
) -> Result<FileChange, String> {
    let document = Document::parse(&file.text)?;
    let (name, entry) = (wanted.name, document.entry(wanted)?);
    let server = match entry.runs() {
        Runs::Plain(server) => server,
        Runs::Wrapped(_) => {
            let is_changed = entry.allow_variables();
            if !is_changed.map_err(|why| format!("{}: {why}", shown(name)))? {
                return Ok(FileChange::None("runs through raincheck already"));
            }
            let note = "it runs through raincheck already, which kept these variables from it";
            let (text, notes) = (document.text(), vec![note.to_owned()]);
            return Ok(FileChange::Text { text, notes });
        }
        Runs::Unknown => {
            let text = "has neither a command nor a url, so there is nothing to wrap";
            return Err(format!("{}: {text}", shown(name)));
        }
    };
    let allowed = options.config.as_deref().map(allowed_variables);
    let launch = Launch {
        raincheck: program::raincheck(&environment())?,
        options: arguments(options)?,
        allowed: allowed
            .transpose()
            .map_err(|e| e.to_string())?
            .unwrap_or_default(),
    };
    let notes = entry
        .wrap(&server, &launch)
        .and_then(|notes| {
            // Checked after the edit, because raincheck reads its settings from the edited entry.
            entry.verify(&server, options)?;
            Ok(notes)
        })
        .map_err(|why| format!("{}: {why}", shown(name)))?;
    let text = document.text();
    Ok(FileChange::Text { text, notes })
}

/// The options as the client will pass them. It starts raincheck in a directory of its own choice.
fn arguments(options: &LaunchOptions) -> Result<Vec<String>, String> {
    let mut arguments = Vec::new();
    if let Some(path) = &options.config {
        let path = std::path::absolute(path)
            .map_err(|e| format!("{}: {}", path.display(), io_reason(&e)))?;
        let path = path
            .to_str()
            .ok_or("--config: not a name that JSON can hold")?;
        arguments.extend(["--config".to_owned(), path.to_owned()]);
    }
    if let Some(url) = &options.store {
        if url.contains('@') {
            let text = "--store: a password has no place on a command line, which everybody on the \
                        machine can read; put store.url into a file for --config";
            return Err(text.to_owned());
        }
        arguments.extend(["--store".to_owned(), url.clone()]);
    }
    if let Some(name) = &options.namespace {
        arguments.extend(["--namespace".to_owned(), name.clone()]);
    }
    Ok(arguments)
}

fn apply(
    line: &WrapArgs,
    file: &SettingsFile,
    text: &str,
    notes: &[String],
) -> Result<ExitCode, CommandFailure> {
    let shown = difference(file, text).map_err(|why| located(&line.file, &why))?;
    say(&shown);
    for note in notes {
        say(&format!("note: {note}\n"));
    }
    if line.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !line.yes && !agreed(&line.file)? {
        return Err(located(&line.file, "not changed"));
    }
    let backup = file
        .replace(text)
        .map_err(|why| CommandFailure::runtime(format!("{}: {why}", line.file.display())))?;
    say(&format!(
        "{} is changed, {} is as it was. Restart the client, or let it read its servers anew.\n",
        line.file.display(),
        backup.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// The longest answer, which is one word.
const ANSWER_MAX: u64 = 64;

fn agreed(file: &Path) -> Result<bool, CommandFailure> {
    let stdin = io::stdin().lock();
    if !stdin.is_terminal() {
        let text = "not changed: there is no terminal to ask on, and no --yes";
        return Err(CommandFailure::usage(format!("{}: {text}", file.display())));
    }
    say(&format!("Change {}? [y/N] ", file.display()));
    let mut answer = String::new();
    // If the input ends, the answer counts as no.
    let _ = stdin.take(ANSWER_MAX).read_line(&mut answer);
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// The servers that could have been named. Nothing if the file has none or cannot be read.
fn names(file: &SettingsFile, project: Option<&str>) -> String {
    let document = Document::parse(&file.text);
    let entries = document.and_then(|document| document.entries(project));
    let names: Vec<String> = entries
        .iter()
        .flatten()
        .map(|(name, _)| shown(name))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    format!(": {}", names.join(", "))
}

fn list(file: &SettingsFile, project: Option<&str>) -> Result<ExitCode, String> {
    let document = Document::parse(&file.text)?;
    let everybodys = document.entries(project)?;
    let mut rows: Vec<_> = everybodys.iter().map(|it| row(it, "")).collect();
    if project.is_none() {
        for (path, entries) in document.projects()? {
            let whose = format!("--project {path}");
            rows.extend(entries.iter().map(|it| row(it, &whose)));
        }
    }
    if rows.is_empty() {
        return Err("names no server".to_owned());
    }
    say(&table(&rows));
    Ok(ExitCode::SUCCESS)
}

fn row((name, entry): &NamedServer, whose: &str) -> [String; 4] {
    let (state, server) = match entry.runs() {
        Runs::Plain(server) => ("", server.to_string()),
        Runs::Wrapped(Some(server)) => ("wrapped", server.to_string()),
        Runs::Wrapped(None) => ("wrapped", "as its settings say".to_owned()),
        Runs::Unknown => ("", "neither a command nor a url".to_owned()),
    };
    let (name, server) = (short(name), short(&server));
    [name, server, state.to_owned(), short(whose)]
}

fn located(file: &Path, why: &str) -> CommandFailure {
    CommandFailure::runtime(format!("{}: {why}", file.display()))
}

/// A reader that went away (`| head`) is no reason to fail.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(printable_lines(text).as_bytes());
    let _ = out.flush();
}
