//! The way back: one server as the newest backup that knew it has it, everything else as it is now.

use super::document::Document;
use super::entry::{Entry, Runs, Server};
use super::file::SettingsFile;
use super::{Change, shown};

pub(super) fn change(file: &SettingsFile, name: &str) -> Result<Change, String> {
    let document = Document::parse(&file.text)?;
    let entry = document.entry(name)?;
    let behind = match entry.runs() {
        Runs::Wrapped(behind) => behind,
        Runs::Plain(_) | Runs::Unknown => {
            return Ok(Change::None("does not run through raincheck"));
        }
    };
    let before = before(file, name, behind.as_ref())?;
    let text = document
        .with(&entry, &before.text())
        .ok_or("cannot be edited")?;
    Ok(Change::Text {
        text,
        notes: Vec::new(),
    })
}

/// The server as it was before it was wrapped: with the very command that is wrapped now, if
/// backups have it, for older ones may have another.
fn before(file: &SettingsFile, name: &str, behind: Option<&Server>) -> Result<Entry, String> {
    let mut newest = None;
    for text in file.backups()? {
        let Some(entry) = Document::parse(&text).and_then(|it| it.entry(name)).ok() else {
            continue;
        };
        let Runs::Plain(server) = entry.runs() else {
            continue;
        };
        if Some(&server) == behind {
            return Ok(entry);
        }
        newest = newest.or(Some(entry));
    }
    newest.ok_or_else(|| {
        let backup = file.backup(1);
        format!(
            "no backup has {} as it was: {}",
            shown(name),
            backup.display()
        )
    })
}
