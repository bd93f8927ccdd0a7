//! The check whether a start could open the store file, without opening it.
//!
//! The check changes nothing and leaves no file behind.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use redb::DatabaseError;
use uuid::Uuid;

use super::file::{EmbeddedOpenError, FileState, PidFile};
use super::{Embedded, tables, undamaged};
use crate::platform::files::{exposed, exposed_directory, private};

impl Embedded {
    /// Returns the state of the file: free if it can be opened, or created if it does not exist. Holds the file's
    /// lock for a moment, shared with other checks.
    pub fn file_state(path: &Path) -> Result<FileState, EmbeddedOpenError> {
        let unwritable = |cause| EmbeddedOpenError::Unwritable {
            path: path.into(),
            cause,
        };
        if let Some(why) = exposed_directory(path) {
            return Err(unwritable(io::Error::other(why)));
        }
        let found = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return can_make(path).map(|()| FileState::Free).map_err(unwritable);
            }
            found => found.map_err(unwritable)?,
        };
        // Opening a named pipe could block for ever.
        if !found.is_file() {
            return Err(unwritable(io::Error::other("it is not a file")));
        }
        if let Some(why) = exposed(&found) {
            return Err(unwritable(io::Error::other(why)));
        }
        // The mode does not show everything: the file system may be read-only.
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.map_err(unwritable)?;
        // A process created the file and was stopped before it wrote anything.
        if found.len() == 0 {
            return Ok(FileState::Free);
        }
        undamaged(path, || Self::content_state(path))
    }

    fn content_state(path: &Path) -> Result<FileState, EmbeddedOpenError> {
        match redb::Builder::new().open_read_only(path) {
            Ok(database) => match tables::is_of_this_format(&database) {
                Ok(true) => Ok(FileState::Free),
                Ok(false) => Err(EmbeddedOpenError::Format(path.into())),
                Err(error) => Err(EmbeddedOpenError::unreadable(path, error)),
            },
            // The file was not closed cleanly. A start repairs it; this check must not change it.
            Err(DatabaseError::RepairAborted) => Ok(FileState::Free),
            Err(error) => match PidFile::new(path).explain(error) {
                EmbeddedOpenError::InUse { holder, .. } => Ok(FileState::InUse(holder)),
                error @ (EmbeddedOpenError::Format(_)
                | EmbeddedOpenError::Damaged(_)
                | EmbeddedOpenError::Unwritable { .. }
                | EmbeddedOpenError::Unreadable { .. }) => Err(error),
            },
        }
    }
}

/// Creates and removes a file of another name in the directory that exists. Only a real attempt shows what
/// the system would answer.
fn can_make(path: &Path) -> io::Result<()> {
    let here = |directory: &&Path| directory.as_os_str().is_empty() || directory.exists();
    let directory = path.ancestors().skip(1).find(here);
    let directory = directory.unwrap_or_else(|| Path::new(""));
    let trial = directory.join(format!(".raincheck-check-{}", Uuid::new_v4().simple()));
    private(OpenOptions::new().write(true).create_new(true)).open(&trial)?;
    std::fs::remove_file(trial)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::base::clock::System;
    use crate::base::io_reason::with_causes;

    struct TempDirectory(PathBuf);

    impl TempDirectory {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("raincheck-look-{}", Uuid::new_v4()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn is_empty(&self) -> bool {
            std::fs::read_dir(&self.0).unwrap().next().is_none()
        }
    }

    impl Drop for TempDirectory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_file_that_can_be_made_is_not_made() {
        let directory = TempDirectory::new();
        let file = directory.0.join("deep/down/x.redb");
        assert_eq!(Embedded::file_state(&file).unwrap(), FileState::Free);
        assert!(directory.is_empty());
    }

    #[test]
    fn what_a_start_could_not_open_is_said() {
        let directory = TempDirectory::new();
        let file = directory.0.join("x.redb");
        std::fs::write(&file, [0x78; 8192]).unwrap();
        // Whose it is and who may open it comes first.
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let error = Embedded::file_state(&file).unwrap_err().to_string();
        assert!(
            error.contains("every user of this machine may open it"),
            "{error}"
        );
        let Err(error) = Embedded::open(&file, Arc::new(System)) else {
            panic!("opened");
        };
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            cause.contains("every user of this machine may open it"),
            "{cause}"
        );
        std::fs::set_permissions(&file, Permissions::from_mode(0o660)).unwrap();
        for path in [
            Path::new("/proc/nope/x.redb"),
            &file.join("beneath"),
            &directory.0,
        ] {
            let error = Embedded::file_state(path).unwrap_err();
            assert!(
                matches!(error, EmbeddedOpenError::Unwritable { .. }),
                "{error}"
            );
        }
        let error = Embedded::file_state(&file).unwrap_err();
        assert!(
            matches!(error, EmbeddedOpenError::Unreadable { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_directory_that_is_open_to_all_is_refused() {
        let directory = TempDirectory::new();
        let refused = |file: &Path| {
            let state = Embedded::file_state(file).map_err(|error| error.to_string());
            let opened = Embedded::open(file, Arc::new(System));
            let opened = opened.map_err(|error| with_causes(&error));
            let said = "every user of this machine may replace files";
            let is_said = |error: Option<String>| error.is_some_and(|text| text.contains(said));
            (is_said(state.err()), is_said(opened.err()))
        };
        let mode = |mode| {
            std::fs::set_permissions(&directory.0, Permissions::from_mode(mode)).unwrap();
        };
        mode(0o777);
        let (file, deep) = (directory.0.join("x.redb"), directory.0.join("deep/x.redb"));
        assert_eq!(refused(&file), (true, true));
        assert_eq!(refused(&deep), (true, true));
        for not_open in [0o1777, 0o775, 0o700] {
            mode(not_open);
            assert_eq!(refused(&file), (false, false), "{not_open:o}");
        }
    }

    /// redb panics at most of them.
    #[test]
    fn a_file_with_a_page_of_zeros_is_said_to_be_damaged() {
        const PAGE: usize = 4096;
        let directory = TempDirectory::new();
        let file = directory.0.join("x.redb");
        drop(Embedded::open(&file, Arc::new(System)).unwrap());
        let good = std::fs::read(&file).unwrap();
        let mut damaged = 0;
        for at in (0..good.len()).step_by(PAGE) {
            let mut bad = good.clone();
            bad.iter_mut()
                .skip(at)
                .take(PAGE)
                .for_each(|byte| *byte = 0);
            std::fs::write(&file, &bad).unwrap();
            let state = Embedded::file_state(&file);
            let opened = Embedded::open(&file, Arc::new(System));
            for error in [state.err(), opened.err()].into_iter().flatten() {
                assert!(
                    matches!(
                        error,
                        EmbeddedOpenError::Damaged(_) | EmbeddedOpenError::Unreadable { .. }
                    ),
                    "{error}"
                );
                damaged += usize::from(bad != good);
            }
        }
        assert!(damaged > 0, "no page counts");
    }

    #[test]
    fn a_file_in_use_is_left_alone() {
        let directory = TempDirectory::new();
        let file = directory.0.join("x.redb");
        let store = Embedded::open(&file, Arc::new(System)).unwrap();
        let me = std::process::id();
        assert_eq!(
            Embedded::file_state(&file).unwrap(),
            FileState::InUse(Some(me))
        );
        // The file that a killed process leaves.
        let left = directory.0.join("left.redb");
        std::fs::copy(&file, &left).unwrap();
        drop(store);
        for file in [&file, &left] {
            let before = std::fs::read(file).unwrap();
            assert_eq!(Embedded::file_state(file).unwrap(), FileState::Free);
            assert!(std::fs::read(file).unwrap() == before, "{}", file.display());
        }
    }
}
