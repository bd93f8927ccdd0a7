//! The process that runs the wrapped server, and ends it when it ends itself.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub use super::process::own_program;
use super::process::prepare;

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

/// Runs the program until it ends, and returns its exit code. The processes that it leaves behind end then.
///
/// Windows has no way to become another program. The job of this process is what ends the program with it.
pub fn run(
    _parent: u32,
    _open_files: Option<u64>,
    program: &OsString,
    arguments: &[OsString],
) -> Result<ExitCode, StartError> {
    prepare().map_err(StartError::Before)?;
    let get = |name: &str| std::env::vars_os().find(|(key, _)| key.eq_ignore_ascii_case(name));
    let path = get("PATH").map(|(_, value)| value).unwrap_or_default();
    let endings = get("PATHEXT").map_or_else(|| ENDINGS.into(), |(_, value)| value);
    let found = find(program, &path, &endings.to_string_lossy());
    let ran = Command::new(found.as_deref().unwrap_or(Path::new(program)))
        .args(arguments)
        .status();
    let code = ran.map_err(StartError::Program)?.code();
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Returns the file of a program, as a shell finds it: `npx` is `npx.cmd` in one of the directories of `path`. `None`: Windows
/// may find it.
fn find(program: &OsStr, path: &OsStr, endings: &str) -> Option<PathBuf> {
    let program = Path::new(program);
    let is_bare = program.components().count() == 1 && !program.has_root();
    let directories: Vec<PathBuf> = if is_bare {
        std::env::split_paths(path).collect()
    } else {
        vec![PathBuf::new()]
    };
    // A name that has an ending is taken as it is first.
    let as_it_is = program.extension().map(|_| "");
    let endings = || as_it_is.into_iter().chain(endings.split(';'));
    directories
        .iter()
        .filter(|directory| !is_bare || directory.is_absolute())
        .flat_map(|directory| {
            endings().map(|ending| {
                let mut file = directory.join(program).into_os_string();
                file.push(ending);
                PathBuf::from(file)
            })
        })
        .find(|file| file.is_file())
}

/// Why a program was not started.
#[derive(Debug)]
pub enum StartError {
    /// What comes before it failed.
    Before(io::Error),
    /// The program cannot be run.
    Program(io::Error),
}

/// Windows has no limit of open files.
pub fn file_limit() -> Option<u64> {
    None
}

/// There is no limit to raise.
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
        let found = |name: &str| find(OsStr::new(name), &path, ".EXE;.CMD");
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
        assert_eq!(found("absent"), None);
        assert_eq!(find(OsStr::new("npx"), OsStr::new("."), ".CMD"), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
