//! A look at the file before anybody opens it: whether a start would have its store. Nothing is
//! changed, and nothing is left behind.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use redb::DatabaseError;
use uuid::Uuid;

use super::file::{Claim, Look, OpenError, exposed};
use super::{Embedded, tables};

impl Embedded {
    /// Whether the file can be opened, or made where it is not there. Holds the file's lock for a
    /// moment, together with others who only look.
    pub fn look(path: &Path) -> Result<Look, OpenError> {
        let unwritable = |cause| OpenError::Unwritable {
            path: path.into(),
            cause,
        };
        let found = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return can_make(path).map(|()| Look::Free).map_err(unwritable);
            }
            found => found.map_err(unwritable)?,
        };
        // To open a pipe may take for ever.
        if !found.is_file() {
            return Err(unwritable(io::Error::other("it is not a file")));
        }
        if let Some(why) = exposed(&found) {
            return Err(unwritable(io::Error::other(why)));
        }
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.map_err(unwritable)?;
        // Made by somebody who was stopped before anything was in it.
        if found.len() == 0 {
            return Ok(Look::Free);
        }
        match redb::Builder::new().open_read_only(path) {
            Ok(database) => match tables::is_of_this_format(&database) {
                Ok(true) => Ok(Look::Free),
                Ok(false) => Err(OpenError::Format(path.into())),
                Err(error) => Err(OpenError::unreadable(path, error)),
            },
            // It was not closed: a start repairs that, and to look changes nothing.
            Err(DatabaseError::RepairAborted) => Ok(Look::Free),
            Err(error) => match Claim::new(path).explain(error) {
                OpenError::InUse { holder, .. } => Ok(Look::InUse(holder)),
                error @ (OpenError::Format(_)
                | OpenError::Unwritable { .. }
                | OpenError::Unreadable { .. }) => Err(error),
            },
        }
    }
}

/// Tried with a file of another name, which goes at once, in the directory that is there: what the
/// system would say can be known by nothing else.
fn can_make(path: &Path) -> io::Result<()> {
    let here = |directory: &&Path| directory.as_os_str().is_empty() || directory.exists();
    let directory = path.ancestors().skip(1).find(here);
    let directory = directory.unwrap_or_else(|| Path::new(""));
    let trial = directory.join(format!(".raincheck-check-{}", Uuid::new_v4().simple()));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&trial)?;
    std::fs::remove_file(trial)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::clock::System;

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("raincheck-look-{}", Uuid::new_v4()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn is_empty(&self) -> bool {
            std::fs::read_dir(&self.0).unwrap().next().is_none()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_file_that_can_be_made_is_not_made() {
        let directory = Directory::new();
        let file = directory.0.join("deep/down/x.redb");
        assert_eq!(Embedded::look(&file).unwrap(), Look::Free);
        assert!(directory.is_empty());
    }

    #[test]
    fn what_a_start_could_not_open_is_said() {
        let directory = Directory::new();
        let file = directory.0.join("x.redb");
        std::fs::write(&file, [0x78; 8192]).unwrap();
        // Whose it is and who may open it comes first.
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let error = Embedded::look(&file).unwrap_err().to_string();
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
            let error = Embedded::look(path).unwrap_err();
            assert!(matches!(error, OpenError::Unwritable { .. }), "{error}");
        }
        let error = Embedded::look(&file).unwrap_err();
        assert!(matches!(error, OpenError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_file_in_use_is_left_alone() {
        let directory = Directory::new();
        let file = directory.0.join("x.redb");
        let store = Embedded::open(&file, Arc::new(System)).unwrap();
        let me = std::process::id();
        assert_eq!(Embedded::look(&file).unwrap(), Look::InUse(Some(me)));
        // What a killed process leaves.
        let left = directory.0.join("left.redb");
        std::fs::copy(&file, &left).unwrap();
        drop(store);
        for file in [&file, &left] {
            let before = std::fs::read(file).unwrap();
            assert_eq!(Embedded::look(file).unwrap(), Look::Free);
            assert!(std::fs::read(file).unwrap() == before, "{}", file.display());
        }
    }
}
