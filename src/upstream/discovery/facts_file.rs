//! A small file that keeps what the server was when raincheck ran before, so that a client need not wait for
//! the server's first answer. It holds only what was said to callers without credentials. It is a hint: a
//! server that refuses what it should understand is asked again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::debug;

use crate::base::io_reason::io_reason;
use crate::base::lock::Mutex;
use crate::mcp::version::Era;
use crate::platform::files::{create_private_directory, is_ours_alone, private};
use crate::upstream::discovery::discovered::Discovered;

/// A description larger than this is not kept.
const BYTES_MAX: u64 = 128 << 10;

/// The time after which kept facts expire, because servers are upgraded.
const BELIEVED: Duration = Duration::from_hours(24 * 7);

/// The kept facts about one server.
#[derive(Debug, Clone, Default)]
pub(in crate::upstream) struct KeptFacts {
    pub(in crate::upstream) era: Option<Era>,
    pub(in crate::upstream) words: Option<Arc<Discovered>>,
}

/// The file, as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct FactsOnDisk {
    era: Option<Box<str>>,
    capabilities: Option<Box<RawValue>>,
    server_info: Option<Box<RawValue>>,
    instructions: Option<Box<RawValue>>,
    supported_versions: Option<Box<RawValue>>,
}

#[derive(Debug)]
pub(in crate::upstream) struct FactsFile {
    file: PathBuf,
    /// The facts that were read or written last, so that nothing is written twice. The lock is held while the file is
    /// written, by a thread that may block.
    text: Mutex<String>,
}

impl FactsFile {
    /// Opens the file, and reads what was kept. A file that other users could write is not believed.
    pub(in crate::upstream) fn open(file: PathBuf) -> (Self, KeptFacts) {
        let kept = match read(&file) {
            Ok(text) => serde_json::from_str(&text).ok().map(kept),
            Err(error) => {
                debug!(error = %io_reason(&error), "nothing is remembered of the server");
                None
            }
        };
        let text = Mutex::default();
        (Self { file, text }, kept.unwrap_or_default())
    }

    /// Writes the file. Blocks the thread.
    pub(in crate::upstream) fn keep(&self, kept: &KeptFacts) {
        let Some(text) = written(kept) else { return };
        let mut last = self.text.lock();
        if *last == text {
            return;
        }
        match replace(&self.file, &text) {
            Ok(()) => *last = text,
            Err(error) => {
                debug!(error = %io_reason(&error), "what the server is cannot be remembered");
            }
        }
    }
}

fn kept(written: FactsOnDisk) -> KeptFacts {
    let era = match written.era.as_deref() {
        Some("modern") => Some(Era::Modern),
        Some("legacy") => Some(Era::Legacy),
        _ => None,
    };
    let words = written.capabilities.map(|capabilities| {
        Arc::new(Discovered {
            capabilities,
            server_info: written.server_info,
            instructions: written.instructions,
            supported_versions: written.supported_versions,
        })
    });
    KeptFacts { era, words }
}

fn written(kept: &KeptFacts) -> Option<String> {
    let words = kept.words.as_deref();
    let written = FactsOnDisk {
        era: kept.era.map(|era| match era {
            Era::Modern => "modern".into(),
            Era::Legacy => "legacy".into(),
        }),
        capabilities: words.map(|words| words.capabilities.clone()),
        server_info: words.and_then(|words| words.server_info.clone()),
        instructions: words.and_then(|words| words.instructions.clone()),
        supported_versions: words.and_then(|words| words.supported_versions.clone()),
    };
    let text = serde_json::to_string(&written).ok()?;
    (u64::try_from(text.len()).ok()? <= BYTES_MAX).then_some(text)
}

fn read(path: &Path) -> io::Result<String> {
    // Only a regular file is read: others may have no end, or block.
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !is_ours_alone(&metadata) {
        return Err(io::Error::other("others may write it, or it is not ours"));
    }
    // A time in the future is an error here: it proves nothing about the age of the file.
    if metadata.modified()?.elapsed().map_err(io::Error::other)? > BELIEVED {
        return Err(io::Error::other("it is old"));
    }
    let mut text = String::new();
    // A longer text is cut here, cannot be parsed, and so is not believed.
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes the file whole or not at all, whatever happens meanwhile.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        create_private_directory(directory)?;
    }
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    // A file of an earlier process with the same number, which did not finish.
    let _ = std::fs::remove_file(&beside);
    let mut file = private(OpenOptions::new().write(true).create_new(true)).open(&beside)?;
    let replaced = file
        .write_all(text.as_bytes())
        .and_then(|()| std::fs::rename(&beside, path));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    replaced
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::mcp::json::raw;

    fn words() -> KeptFacts {
        KeptFacts {
            era: Some(Era::Legacy),
            words: Some(Arc::new(Discovered {
                capabilities: raw(r#"{"tools":{}}"#.to_owned()).unwrap(),
                server_info: None,
                instructions: Some(raw(r#""do""#.to_owned()).unwrap()),
                supported_versions: None,
            })),
        }
    }

    fn place(name: &str) -> PathBuf {
        let name = format!("raincheck-memory-{name}-{}", std::process::id());
        std::env::temp_dir().join(name).join("below/known.json")
    }

    fn instructions(path: &Path) -> Option<String> {
        let (_, kept) = FactsFile::open(path.to_owned());
        Some(kept.words?.instructions.as_ref()?.get().to_owned())
    }

    #[test]
    fn it_is_kept_for_its_owner_alone() {
        let path = place("kept");
        let (memory, nothing) = FactsFile::open(path.clone());
        assert!(nothing.era.is_none() && nothing.words.is_none());
        memory.keep(&words());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(instructions(&path).as_deref(), Some("\"do\""));
        assert_eq!(FactsFile::open(path.clone()).1.era, Some(Era::Legacy));
        let others = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(others, 1, "nothing is left beside it");

        let open = std::fs::Permissions::from_mode(0o620);
        std::fs::set_permissions(&path, open).unwrap();
        assert_eq!(instructions(&path), None, "others may have written it");
        std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn what_is_old_or_too_large_or_no_memory_is_not_believed() {
        let path = place("old");
        let (memory, _) = FactsFile::open(path.clone());
        memory.keep(&words());
        let file = File::options().write(true).open(&path).unwrap();
        let changed = file.metadata().unwrap().modified().unwrap();
        file.set_modified(changed - BELIEVED).unwrap();
        assert_eq!(instructions(&path), None);
        for other in ["junk", "[]"] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(instructions(&path), None);
        }
        let mut large = words();
        let long = "x".repeat(usize::try_from(BYTES_MAX).unwrap());
        large.words = Some(Arc::new(Discovered {
            instructions: Some(raw(format!("\"{long}\"")).unwrap()),
            ..(*large.words.unwrap()).clone()
        }));
        memory.keep(&large);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[]");
        std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }
}
