//! The file itself: who may open it, and one clear sentence when it cannot be opened.

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, StorageError};
use rustix::process::geteuid;

/// Why the embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{} is in use by another raincheck{}: a store file belongs to one process, give this one \
         its own with --store redb:PATH",
        path.display(),
        holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse { path: PathBuf, holder: Option<u32> },
    #[error("{} was written by another version of raincheck in a format that is not known", .0.display())]
    Format(PathBuf),
    #[error(
        "{} cannot be written ({cause}); name another file with --store redb:PATH",
        path.display()
    )]
    Unwritable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the store file {} cannot be opened", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OpenError {
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

/// What a store file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Whoever starts now has it, or makes it.
    Free,
    /// A process has it, and which one, as far as it says so.
    InUse(Option<u32>),
}

/// Where the database is and how it is opened.
#[derive(Debug)]
pub(super) struct File(PathBuf);

impl File {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.into())
    }

    pub(super) fn open(&self) -> Result<Database, DatabaseError> {
        let io = |error| DatabaseError::Storage(StorageError::Io(error));
        if let Some(directory) = self.0.parent().filter(|path| !path.as_os_str().is_empty()) {
            // Records may be personal: nobody else on the machine reads them.
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(io)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.0)
            .map_err(io)?;
        ours(&file).map_err(io)?;
        redb::Builder::new().set_cache_size(CACHE).create_file(file)
    }
}

/// Why a file that is there must not be used: what it says may be personal, and what it is given is
/// believed. A group may have it, because Kubernetes gives volumes to one (`fsGroup`).
pub(super) fn exposed(found: &Metadata) -> Option<&'static str> {
    if found.uid() != geteuid().as_raw() {
        return Some("it belongs to another user; have it made by the one that raincheck runs as");
    }
    let is_open = found.mode() & 0o007 != 0;
    is_open.then_some("every user of this machine may open it; close it with chmod 600")
}

/// A file that is there, if it may be used.
pub(super) fn ours(file: &std::fs::File) -> io::Result<()> {
    match exposed(&file.metadata()?) {
        Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
        None => Ok(()),
    }
}

/// Tells a second process who has the file. Only a hint: what excludes is the lock on the file.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    hint: PathBuf,
}

impl Claim {
    pub(super) fn new(path: &Path) -> Self {
        let mut hint = OsString::from(path);
        hint.push(".pid");
        Self {
            path: path.into(),
            hint: hint.into(),
        }
    }

    /// Says that the file is ours. A store without its hint works as well, so failure is no error.
    pub(super) fn sign(&self) {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.hint);
        if let Ok(mut file) = file {
            let _ = writeln!(file, "{}", std::process::id());
        }
    }

    /// How large the file is, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |found| found.len())
    }

    pub(super) fn withdraw(&self) {
        let _ = std::fs::remove_file(&self.hint);
    }

    pub(super) fn explain(&self, error: DatabaseError) -> OpenError {
        if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
            let hint = std::fs::read_to_string(&self.hint).ok();
            let holder = hint.and_then(|text| text.trim().parse().ok());
            OpenError::InUse {
                path: self.path.clone(),
                holder,
            }
        } else {
            OpenError::unreadable(&self.path, error)
        }
    }
}

/// A file up to here may be as empty as it likes.
pub(super) const LARGE: u64 = 64 << 20;

/// Bytes of the file kept in memory; redb's own default is a gigabyte.
const CACHE: usize = 64 << 20;
