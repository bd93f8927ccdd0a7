//! The files of this repository that a person wrote.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of what was not written here.
const FOREIGN: &[&str] = &[".git", "node_modules", "results", "target"];

/// The files with these extensions in a folder and all folders in it, in order.
pub(crate) fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(folder, extensions, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if !FOREIGN.iter().any(|foreign| name == *foreign) {
                collect(&path, extensions, found);
            }
        } else if path
            .extension()
            .is_some_and(|own| extensions.iter().any(|extension| own == *extension))
        {
            found.push(path);
        }
    }
}
