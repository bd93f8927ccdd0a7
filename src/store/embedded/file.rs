//! The database file: who may open it, and one clear sentence when it cannot be opened.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, StorageError};

use crate::base::io_reason::io_reason;
use crate::platform::files::{create_private_directory, exposed, exposed_directory, private};

/// Why the embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedOpenError {
    #[error(
        "{} is in use by another raincheck{}: a store file belongs to one process, give this one \
         its own with --store redb:PATH",
        path.display(),
        holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse { path: PathBuf, holder: Option<u32> },
    #[error("{} was written by another version of raincheck, in a format that this version does not know; run that version, or name another file", .0.display())]
    Format(PathBuf),
    #[error(
        "{} cannot be written ({}); name another file with --store redb:PATH",
        path.display(),
        io_reason(cause)
    )]
    Unwritable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the store file {} is damaged: put a copy of it in its place, or move it away to begin without its tasks", .0.display())]
    Damaged(PathBuf),
    #[error("the store file {} cannot be opened (--store redb:PATH names another one)", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl EmbeddedOpenError {
    pub(super) fn unreadable(
        path: &Path,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Unreadable {
            path: path.into(),
            cause: cause.into(),
        }
    }
}

/// The availability of a store file to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// No process has the file open, or the file can be created.
    Free,
    /// A process has the file open. Holds its id if that is known.
    InUse(Option<u32>),
}

/// The path of the database and how it is opened.
#[derive(Debug)]
pub(super) struct DatabaseFile(PathBuf);

impl DatabaseFile {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.into())
    }

    pub(super) fn open(&self) -> Result<Database, DatabaseError> {
        let io = |error| DatabaseError::Storage(StorageError::Io(error));
        // Checked before anything is created there, because others could replace a new file as well.
        if let Some(why) = exposed_directory(&self.0) {
            return Err(io(io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
        if let Some(directory) = self.0.parent().filter(|path| !path.as_os_str().is_empty()) {
            // Records may hold personal data, so no other user may read them.
            create_private_directory(directory).map_err(io)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = private(&mut options).open(&self.0).map_err(io)?;
        // The open file is checked, and not its path, which can lead to another file by now.
        check_access(&file).map_err(io)?;
        redb::Builder::new()
            .set_cache_size(CACHE)
            .create_with_backend(FileBackend::new(file)?)
    }
}

/// Refuses an existing file that is [`exposed`].
pub(super) fn check_access(file: &std::fs::File) -> io::Result<()> {
    match exposed(&file.metadata()?) {
        Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
        None => Ok(()),
    }
}

/// Shows a second process which process has the file open, by a file beside it that holds the process id.
///
/// The process id is a hint for the user. The lock on the database file is what excludes a second process.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    pid_file: PathBuf,
}

impl PidFile {
    pub(super) fn new(path: &Path) -> Self {
        let mut pid_file = OsString::from(path);
        pid_file.push(".pid");
        Self {
            path: path.into(),
            pid_file: pid_file.into(),
        }
    }

    /// Writes the id of this process. A failure is no error, because the store works without the hint. A file that
    /// another process left there is removed first, so that a link in its place is not followed.
    pub(super) fn write_pid(&self) {
        self.remove_pid();
        let file = private(OpenOptions::new().write(true).create_new(true)).open(&self.pid_file);
        if let Ok(mut file) = file {
            let _ = writeln!(file, "{}", std::process::id());
        }
    }

    /// The size of the database file in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |found| found.len())
    }

    pub(super) fn remove_pid(&self) {
        let _ = std::fs::remove_file(&self.pid_file);
    }

    pub(super) fn explain(&self, error: DatabaseError) -> EmbeddedOpenError {
        if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
            // The hint is read only where the file is locked: otherwise it may be that of a process that crashed.
            let pid = std::fs::read_to_string(&self.pid_file).ok();
            let holder = pid.and_then(|text| text.trim().parse().ok());
            EmbeddedOpenError::InUse {
                path: self.path.clone(),
                holder,
            }
        } else {
            EmbeddedOpenError::unreadable(&self.path, error)
        }
    }
}

/// Smaller files are not compacted, however empty they are.
pub(super) const LARGE: u64 = 64 << 20;

/// Bytes of the file that redb caches in memory. Its default is a gigabyte.
const CACHE: usize = 64 << 20;
