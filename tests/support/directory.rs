//! A temporary directory for one test.

use std::path::{Path, PathBuf};

/// The directory is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// The name is short: a socket's path has room for about a hundred bytes.
    pub(crate) fn below(base: &Path) -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let path = base.join(format!("rct-{}", &random[..12]));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Creates a file in the directory with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
