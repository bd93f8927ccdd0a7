//! Undoes the wrapping of one server: restores its earlier entry, and keeps later changes of it.

use super::change::FileChange;
use super::document::{Document, WantedServer, shown};
use super::entry::{Runs, ServerEntry, ServerSpec};
use super::file::SettingsFile;

pub(super) fn change(file: &SettingsFile, wanted: WantedServer<'_>) -> Result<FileChange, String> {
    let document = Document::parse(&file.text)?;
    let entry = document.entry(wanted)?;
    let behind = match entry.runs() {
        Runs::Wrapped(behind) => behind,
        Runs::Plain(_) | Runs::Unknown => {
            return Ok(FileChange::None("does not run through raincheck"));
        }
    };
    let backups = file.backups();
    let mut all = backups.iter().filter_map(|(_, text)| plain(text, wanted));
    // A backup that becomes this very entry is exact, so it comes before any edit.
    let (text, notes) = if let Some(before) = all.find_map(|earlier| earlier.becomes(&entry)) {
        (document.with(&entry, &before), Vec::new())
    } else if let Some(server) = behind {
        // The newest backup is used, so that a token that was replaced meanwhile does not come back.
        let newest = backups.iter().find_map(|(_, text)| plain(text, wanted));
        let before = newest.as_ref().map(|earlier| &earlier.entry);
        let note = "no backup has this very server; only what raincheck put there is taken out";
        let mut notes = vec![note.to_owned()];
        notes.extend(entry.unwrap(&server, before));
        (Some(document.text()), notes)
    } else {
        let newest = backups
            .iter()
            .find_map(|(path, text)| Some((path, plain(text, wanted)?)));
        let (path, before) = newest.ok_or_else(|| {
            let backup = file.backup(1);
            let backup = backup.display();
            format!("no backup has {} as it was: {backup}", shown(wanted.name))
        })?;
        let note = format!("the server is as {} has it", path.display());
        (document.with(&entry, &before.entry.text()), vec![note])
    };
    let text = text.ok_or("cannot be edited")?;
    Ok(FileChange::Text { text, notes })
}

/// The entry of a server from before it was wrapped.
struct Earlier {
    entry: ServerEntry,
    server: ServerSpec,
    /// The document that the entry belongs to. It keeps the entry alive.
    _document: Document,
}

fn plain(text: &str, wanted: WantedServer<'_>) -> Option<Earlier> {
    let document = Document::parse(text).ok()?;
    let entry = document.entry(wanted).ok()?;
    match entry.runs() {
        Runs::Plain(server) => Some(Earlier {
            entry,
            server,
            _document: document,
        }),
        Runs::Wrapped(_) | Runs::Unknown => None,
    }
}

impl Earlier {
    /// The text of the earlier entry, if wrapping it again gives exactly `wrapped`: then nothing else was
    /// changed since.
    fn becomes(self, wrapped: &ServerEntry) -> Option<String> {
        let before = self.entry.text();
        self.entry.wrap(&self.server, &wrapped.launch()).ok()?;
        (self.entry.text() == wrapped.text()).then_some(before)
    }
}
