//! The process that runs the wrapped server, and ends it when it ends itself.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub use super::process::own_program;
use super::process::tie_children;

/// Ctrl-C in a console does not reach the process.
const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;

/// No window opens where raincheck itself has none, as under a client with windows of its own.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

/// The endings of programs where `PATHEXT` is not set.
const ENDINGS: &str = ".COM;.EXE;.BAT;.CMD";

/// Keeps a child away from the console of this process.
pub fn separate(command: &mut tokio::process::Command) {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW);
}

/// Runs the program until it ends, and ends with its exit code. The processes that it leaves behind end then.
///
/// Windows has no way to become another program. The job of this process is what ends the program with it.
pub fn run(
    _parent: u32,
    _open_files: Option<u64>,
    program: &OsString,
    arguments: &[OsString],
) -> Result<ExitCode, StartError> {
    tie_children().map_err(StartError::Before)?;
    let get = |name: &str| {
        let mut variables = std::env::vars_os();
        let found = variables.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| value.into_string().ok())
    };
    // Windows would look in more places, also in the directory of the moment.
    let found = find(Path::new(program), Path::new(""), get)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such program"))
        .map_err(StartError::Program)?;
    let ran = Command::new(found).args(arguments).status();
    let code = ran.map_err(StartError::Program)?.code();
    #[expect(
        clippy::exit,
        reason = "the code of a program that crashed is larger than `ExitCode` takes"
    )]
    std::process::exit(code.unwrap_or(1))
}

/// Looks for a program as the start does, in a directory and with the variables that it gets. `Err`: what is wrong.
pub fn look_for(
    program: &str,
    directory: &Path,
    get: impl Fn(&str) -> Option<String>,
) -> Result<(), &'static str> {
    let program = Path::new(program);
    let why = if is_bare(program) {
        "is not on the PATH"
    } else {
        "does not exist"
    };
    find(program, directory, get).map(|_| ()).ok_or(why)
}

/// Returns the file of a program, as a shell finds it: `npx` is `npx.cmd` in one of the directories of `PATH`.
fn find(program: &Path, directory: &Path, get: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let path = get("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = if is_bare(program) {
        // A part that is not absolute leads to whatever lies in the directory of the moment.
        let parts = std::env::split_paths(&path);
        parts.filter(|part| part.is_absolute()).collect()
    } else {
        vec![directory.into()]
    };
    let endings = get("PATHEXT").unwrap_or_else(|| ENDINGS.to_owned());
    // A name that has an ending is taken as it is first.
    let as_it_is = program.extension().map(|_| "");
    let endings = || {
        as_it_is
            .into_iter()
            .chain(endings.split(';').filter(|ending| !ending.is_empty()))
    };
    let files = directories.iter().flat_map(|directory| {
        endings().map(|ending| {
            let mut file = directory.join(program).into_os_string();
            file.push(ending);
            PathBuf::from(file)
        })
    });
    files.into_iter().find(|file| file.is_file())
}

fn is_bare(program: &Path) -> bool {
    program.components().count() == 1 && !program.has_root()
}

/// Why a program was not started.
#[derive(Debug)]
pub enum StartError {
    /// A step before it failed.
    Before(io::Error),
    /// The program cannot be run.
    Program(io::Error),
}

/// Returns `None`: Windows has no limit of open files.
pub fn file_limit() -> Option<u64> {
    None
}

/// Does nothing: there is no limit to raise.
#[expect(
    clippy::unnecessary_wraps,
    reason = "other systems have a limit, and may refuse"
)]
pub fn raise_file_limit() -> io::Result<()> {
    Ok(())
}

/// Returns `true` if the system has no memory or no handle for another program.
pub fn is_out_of_room(error: &io::Error) -> bool {
    // ERROR_TOO_MANY_OPEN_FILES, ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY, ERROR_NO_SYSTEM_RESOURCES,
    // ERROR_COMMITMENT_LIMIT.
    matches!(error.raw_os_error(), Some(4 | 8 | 14 | 1450 | 1455))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_without_its_ending() {
        let folder = std::env::temp_dir().join(format!("raincheck find {}", std::process::id()));
        let empty = folder.join("empty");
        std::fs::create_dir_all(&empty).unwrap();
        for name in ["npx.cmd", "npx", "tool.v2.exe"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let path = std::env::join_paths([&empty, &folder]).unwrap();
        let get = |name: &str| match name {
            "PATH" => path.clone().into_string().ok(),
            _ => Some(".EXE;.CMD;".to_owned()),
        };
        let found = |name: &str| find(Path::new(name), &folder, get);
        let is = |name: &str, file: &str| {
            let lower = found(name).map(|file| file.to_string_lossy().to_lowercase());
            let wanted = folder.join(file).to_string_lossy().to_lowercase();
            assert_eq!(lower.as_deref(), Some(&*wanted), "{name}");
        };
        // The file without an ending is a script for other shells.
        is("npx", "npx.cmd");
        is("npx.cmd", "npx.cmd");
        is("tool.v2", "tool.v2.exe");
        is(&folder.join("npx").to_string_lossy(), "npx.cmd");
        is(r".\npx", r".\npx.cmd");
        assert_eq!(found("absent"), None);
        let here = |_: &str| Some(".".to_owned());
        assert_eq!(find(Path::new("npx"), &folder, here), None);
        assert_eq!(look_for("absent", &folder, get), Err("is not on the PATH"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
