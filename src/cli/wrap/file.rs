//! A client's settings file on the disk. It is replaced as a whole or not at all, and never without a backup.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::base::io_reason::io_reason;
use crate::platform::files::{canonicalize, give_rights, private};

pub(super) struct SettingsFile {
    /// The path of the file, with links followed, so that a link stays a link.
    pub(super) path: PathBuf,
    /// [`MARK`], or nothing.
    mark: &'static str,
    /// The text after the mark.
    pub(super) text: String,
    metadata: Metadata,
}

/// The largest settings file. Some clients keep all their state in it.
const BYTES_MAX: u64 = 64 << 20;

/// The byte order mark that some editors on Windows write. It stays, because the client that reads the file skips it.
const MARK: &str = "\u{feff}";

/// The ending that the name of a backup adds to the name of the file.
const BACKUP: &str = ".raincheck-backup";

/// The most backups. At this number the user must remove some.
const BACKUPS_MAX: u32 = 999;

impl SettingsFile {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let cannot = |e: io::Error| format!("cannot be read: {}", io_reason(&e));
        let path = canonicalize(path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                "there is no such file; name the settings of a client, such as .mcp.json".to_owned()
            } else {
                cannot(error)
            }
        })?;
        let metadata = fs::metadata(&path).map_err(cannot)?;
        if !metadata.is_file() {
            return Err("not a file".to_owned());
        }
        let (mark, text) = text(&path)?;
        Ok(Self {
            path,
            mark,
            text,
            metadata,
        })
    }

    /// Replaces the file's content by `text` and returns the path of the backup, which is on the disk before.
    /// Fails if the file changed since it was read, because its client writes to it, too.
    pub(super) fn replace(&self, text: &str) -> Result<PathBuf, String> {
        let backup = self.keep()?;
        // In the same folder, because only within one file system a rename replaces the file at once.
        let new = self.beside(&format!(".raincheck-{}", std::process::id()));
        let written = self.create(&new, text).and_then(|()| {
            // Compared as late as possible, because a change between this look and the rename is lost.
            if self::text(&self.path).is_ok_and(|(_, now)| now == self.text) {
                fs::rename(&new, &self.path)
            } else {
                Err(io::Error::other("somebody else has just changed it"))
            }
        });
        if let Err(e) = written {
            // The file may not exist, if creating it failed.
            let _ = fs::remove_file(&new);
            return Err(format!("not changed: {}", io_reason(&e)));
        }
        Ok(backup)
    }

    /// The readable backups, newest first, each with its path and its text.
    pub(super) fn backups(&self) -> Vec<(PathBuf, String)> {
        let kept = self.kept().unwrap_or_default().into_iter().rev();
        kept.filter_map(|(_, path)| text(&path).ok().map(|(_, text)| (path, text)))
            .collect()
    }

    /// The path of a backup: `FILE.raincheck-backup`, and from the second backup on with its number.
    pub(super) fn backup(&self, number: u32) -> PathBuf {
        match number {
            1 => self.beside(BACKUP),
            number => self.beside(&format!("{BACKUP}.{number}")),
        }
    }

    /// Keeps a copy of the current content under the next number, unless the newest backup is the same.
    fn keep(&self) -> Result<PathBuf, String> {
        let kept = self.kept().map_err(|e| no_backup(&e))?;
        let newest = kept.last();
        if let Some((_, path)) = newest
            && text(path).is_ok_and(|(_, kept)| kept == self.text)
        {
            return Ok(path.clone());
        }
        let number = newest.map_or(1, |(number, _)| number.saturating_add(1));
        if number > BACKUPS_MAX {
            let folder = self.path.parent().unwrap_or(&self.path);
            return Err(format!(
                "not changed: {} has {BACKUPS_MAX} backups of it; remove them",
                folder.display()
            ));
        }
        let path = self.backup(number);
        self.create(&path, &self.text).map_err(|e| {
            // Another process has just made a backup of this name.
            if e.kind() != io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&path);
            }
            no_backup(&e)
        })?;
        Ok(path)
    }

    /// The existing backups with their numbers, oldest first. Users may have removed some.
    fn kept(&self) -> io::Result<Vec<(u32, PathBuf)>> {
        let first = self.backup(1);
        let (Some(folder), Some(first)) = (self.path.parent(), first.file_name()) else {
            return Ok(Vec::new());
        };
        let mut kept = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let rest = name
                .as_encoded_bytes()
                .strip_prefix(first.as_encoded_bytes());
            if let Some(number) = rest.and_then(number) {
                kept.push((number, entry.path()));
            }
        }
        kept.sort_unstable();
        Ok(kept)
    }

    /// Creates a file with the owner and mode of this file, and syncs it to the disk.
    fn create(&self, path: &Path, text: &str) -> io::Result<()> {
        // Private until it has its owner and its mode, because the settings may hold secrets.
        let mut file = private(OpenOptions::new().write(true).create_new(true)).open(path)?;
        file.write_all(self.mark.as_bytes())?;
        file.write_all(text.as_bytes())?;
        // If this is not permitted, nothing is replaced, because the owner could not read the new file.
        give_rights(&file, &self.metadata)?;
        // Without this, a crash soon after the rename could leave an empty file.
        file.sync_all()
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(suffix);
        name.into()
    }
}

/// The number of a backup, from the text after [`BACKUP`].
fn number(rest: &[u8]) -> Option<u32> {
    if rest.is_empty() {
        return Some(1);
    }
    let digits = std::str::from_utf8(rest.strip_prefix(b".")?).ok()?;
    digits.parse().ok().filter(|number| *number > 1)
}

fn no_backup(error: &io::Error) -> String {
    format!("not changed: no backup can be made: {}", io_reason(error))
}

/// The mark of a file, and what follows it.
fn text(path: &Path) -> Result<(&'static str, String), String> {
    let cannot = |e: io::Error| format!("cannot be read: {}", io_reason(&e));
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    // One byte beyond the bound shows that the file is larger.
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    if u64::try_from(read.map_err(cannot)?).is_ok_and(|read| read > BYTES_MAX) {
        return Err("too large for settings".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "not JSON: it is not UTF-8")?;
    Ok(match text.strip_prefix(MARK) {
        Some(rest) => (MARK, rest.to_owned()),
        None => ("", text),
    })
}
