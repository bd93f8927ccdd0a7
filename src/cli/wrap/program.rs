//! The command by which a client finds this executable.

use std::env::consts::EXE_SUFFIX;
use std::path::Path;

use crate::base::io_reason::io_reason;
use crate::platform::environment::is_same_variable;
use crate::platform::files::canonicalize;

const NAME: &str = "raincheck";

/// The command to launch raincheck. It is the bare name if `PATH` leads to this executable, because settings
/// are shared between machines; otherwise it is the absolute path.
pub(super) fn raincheck(environment: &[(String, String)]) -> Result<String, String> {
    let own = std::env::current_exe()
        .and_then(|own| canonicalize(&own))
        .map_err(|e| format!("raincheck does not find its own program: {}", io_reason(&e)))?;
    let path = environment
        .iter()
        .find(|(name, _)| is_same_variable(name, "PATH"));
    let folders = path.map(|(_, folders)| std::env::split_paths(folders));
    // A relative folder depends on where the client starts, so only absolute ones count.
    let found = folders
        .into_iter()
        .flatten()
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(format!("{NAME}{EXE_SUFFIX}")))
        // A later file of this name does not count, because a search in `PATH` ends at the first.
        .find(|file| file.is_file());
    if found.is_some_and(|file| is_same(&file, &own)) {
        return Ok(NAME.to_owned());
    }
    let text = own.to_str();
    let text = text.ok_or("raincheck lies in a folder whose name JSON cannot hold")?;
    Ok(text.to_owned())
}

fn is_same(file: &Path, own: &Path) -> bool {
    canonicalize(file).is_ok_and(|file| file == own)
}
