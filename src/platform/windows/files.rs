//! Files that other users may neither read nor replace. Windows decides that by the access list that a file inherits from its
//! folder: the folders of a user are closed to all others but administrators.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Returns the options unchanged: a file is as private as its folder.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Creates a directory and those around it. They are as private as the one that exists.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Returns `None`: access lists are not judged.
pub fn exposed(_found: &Metadata) -> Option<&'static str> {
    None
}

/// Returns `None`: access lists are not judged.
pub fn exposed_directory(_file: &Path) -> Option<&'static str> {
    None
}

/// Returns `true` for a regular file. Access lists are not judged.
pub fn is_ours_alone(found: &Metadata) -> bool {
    found.is_file()
}

/// Does nothing: a file has the access list of its folder.
#[expect(clippy::unnecessary_wraps, reason = "other systems may refuse it")]
pub fn give_rights(_file: &File, _of: &Metadata) -> io::Result<()> {
    Ok(())
}

/// The path with links followed, in the form that people write (`C:\folder`).
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    dunce::canonicalize(path)
}

/// Returns `false`: a pipe has no metadata.
pub fn is_pipe(_found: &Metadata) -> bool {
    false
}

/// Returns `false`: sockets are no files.
pub fn is_socket(_found: &Metadata) -> bool {
    false
}
