//! A client's settings on the disk: replaced whole or not at all, and never without a backup.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

pub(super) struct SettingsFile {
    /// Where it is, links followed: a link stays one.
    pub(super) path: PathBuf,
    pub(super) text: String,
    metadata: Metadata,
}

/// Some clients keep all their state beside their servers, but no more than this.
const BYTES_MAX: u64 = 64 << 20;

/// What a backup's name has behind the file's.
const BACKUP: &str = ".raincheck-backup";

/// Then it is time to tidy up.
const BACKUPS_MAX: u32 = 999;

impl SettingsFile {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let cannot = |e: io::Error| format!("cannot be read: {}", reason(&e));
        let path = fs::canonicalize(path).map_err(cannot)?;
        let metadata = fs::metadata(&path).map_err(cannot)?;
        if !metadata.is_file() {
            return Err("not a file".to_owned());
        }
        let text = text(&path)?;
        Ok(Self {
            path,
            text,
            metadata,
        })
    }

    /// Puts `text` in the file's place and returns the backup, which is on the disk before. Fails
    /// when the file is no longer what was read: its client writes to it, too.
    pub(super) fn replace(&self, text: &str) -> Result<PathBuf, String> {
        let backup = self.keep()?;
        let new = self.beside(&format!(".raincheck-{}", std::process::id()));
        let written = self.create(&new, text).and_then(|()| {
            if self::text(&self.path).is_ok_and(|now| now == self.text) {
                fs::rename(&new, &self.path)
            } else {
                Err(io::Error::other("somebody else has just changed it"))
            }
        });
        if let Err(e) = written {
            // What could not be written may not be there either.
            let _ = fs::remove_file(&new);
            return Err(format!("not changed: {}", reason(&e)));
        }
        Ok(backup)
    }

    /// What can be read of the file's earlier states, the newest first, each with where it is.
    pub(super) fn backups(&self) -> Vec<(PathBuf, String)> {
        let kept = self.kept().unwrap_or_default().into_iter().rev();
        kept.filter_map(|(_, path)| text(&path).ok().map(|text| (path, text)))
            .collect()
    }

    /// `FILE.raincheck-backup`, and from the second on with its number.
    pub(super) fn backup(&self, number: u32) -> PathBuf {
        match number {
            1 => self.beside(BACKUP),
            number => self.beside(&format!("{BACKUP}.{number}")),
        }
    }

    /// A copy of this state under the next number, unless the newest one is of it: numbers say age.
    fn keep(&self) -> Result<PathBuf, String> {
        let kept = self.kept().map_err(|e| no_backup(&e))?;
        let newest = kept.last();
        if let Some((_, path)) = newest
            && text(path).is_ok_and(|kept| kept == self.text)
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
            // Whoever was quicker has that name for a backup of their own.
            if e.kind() != io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&path);
            }
            no_backup(&e)
        })?;
        Ok(path)
    }

    /// The backups that are there by their numbers, the oldest first. Some may have been removed.
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

    /// A new file that is read by the same people as this one, and is on the disk.
    fn create(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(text.as_bytes())?;
        let own = file.metadata()?;
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        if (own.uid(), own.gid()) != (uid, gid) {
            fchown(&file, Some(uid), Some(gid))?;
        }
        file.set_permissions(Permissions::from_mode(self.metadata.mode() & 0o7777))?;
        file.sync_all()
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(suffix);
        name.into()
    }
}

/// What stands behind [`BACKUP`].
fn number(rest: &[u8]) -> Option<u32> {
    if rest.is_empty() {
        return Some(1);
    }
    let digits = std::str::from_utf8(rest.strip_prefix(b".")?).ok()?;
    digits.parse().ok().filter(|number| *number > 1)
}

fn no_backup(error: &io::Error) -> String {
    format!("not changed: no backup can be made: {}", reason(error))
}

fn text(path: &Path) -> Result<String, String> {
    let cannot = |e: io::Error| format!("cannot be read: {}", reason(&e));
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    if u64::try_from(read.map_err(cannot)?).is_ok_and(|read| read > BYTES_MAX) {
        return Err("too large for settings".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "not JSON: it is not UTF-8".to_owned())
}

/// An error without the number that the system has for it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_owned()
}
