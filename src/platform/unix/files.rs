//! Files that other users may neither read nor replace: by the mode and the owner of a file.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Makes a file that these options create readable by its owner only.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Creates a directory and those around it, each closed to other users. One that exists stays as it is.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Why an existing file must not be used. Its content may be personal, and raincheck trusts what it reads
/// there. A group may have access, because Kubernetes gives volumes to a group (`fsGroup`).
pub fn exposed(found: &Metadata) -> Option<&'static str> {
    if found.uid() != geteuid().as_raw() {
        return Some("it belongs to another user; have it made by the one that raincheck runs as");
    }
    let is_open = found.mode() & 0o007 != 0;
    is_open.then_some(
        "every user of this machine may open it; if raincheck made it, close it with chmod 600, else \
         name another file",
    )
}

/// Why no file of this path must be used: others may put files of theirs in its place. A directory with the sticky bit, as
/// `/tmp`, does not let them, and a volume is of those who mounted it: Kubernetes makes an `emptyDir` that is open to all.
pub fn exposed_directory(file: &Path) -> Option<&'static str> {
    // The parent of a bare name is the empty path.
    let mut directories = file.ancestors().skip(1).map(|it| Path::new(".").join(it));
    // Directories that do not exist yet are no risk: raincheck makes them itself, closed to others.
    let (directory, found) = directories.find_map(|it| Some((it.clone(), it.metadata().ok()?)))?;
    let is_volume = || {
        let around = directory.join("..").metadata();
        around.is_ok_and(|around| around.dev() != found.dev())
    };
    let is_open = found.mode() & 0o1002 == 0o002;
    (is_open && !is_volume()).then_some(
        "every user of this machine may replace files in its directory; close that with chmod o-w, or name another file",
    )
}

/// Returns `true` for a regular file that only this user may read or write.
pub fn is_ours_alone(found: &Metadata) -> bool {
    // The six lowest bits are the rights of the group and of all others.
    found.is_file() && found.uid() == geteuid().as_raw() && found.mode().trailing_zeros() >= 6
}

/// Gives a file the owner and the rights of another one. An error if the system does not permit it.
pub fn give_rights(file: &File, of: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (of.uid(), of.gid()) {
        fchown(file, Some(of.uid()), Some(of.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(of.mode() & 0o7777))
}

/// The path with links followed.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

pub fn is_pipe(found: &Metadata) -> bool {
    found.file_type().is_fifo() || is_socket(found)
}

pub fn is_socket(found: &Metadata) -> bool {
    found.file_type().is_socket()
}
