//! One source of settings: a file, a text in TOML, the environment or the flags.

use std::path::Path;

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map};
use figment::{Metadata, Profile, Provider};

use super::problem::ConfigError;
use crate::base::io_reason::io_reason;

/// One source of settings under the name that errors give it.
#[derive(Clone)]
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) settings: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.settings.clone()))
    }
}

impl Layer {
    /// Reads a file. `named_by`: what names the file, for the error.
    pub(super) fn of_file(path: &Path, named_by: &str) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| unreadable(path, named_by, &error))?;
        Self::of_text(path.display().to_string(), &text)
    }

    pub(super) fn of_text(name: String, text: &str) -> Result<Self, ConfigError> {
        let settings = Toml::from_str(text).map_err(|e| {
            // Not its Display, which quotes the line, and with it perhaps a password.
            let before = e
                .span()
                .and_then(|span| text.get(..span.start))
                .unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            let message = e.message().replace('\n', ", ");
            ConfigError::new(format!("{name}: line {line} is not TOML: {message}"))
        })?;
        Ok(Self { name, settings })
    }
}

/// Names what names the file, and the folder of a relative path: a service is often started in another one than its user
/// thinks.
fn unreadable(path: &Path, named_by: &str, error: &std::io::Error) -> ConfigError {
    let reason = io_reason(error);
    let folder = std::env::current_dir().ok().filter(|_| path.is_relative());
    let looked = folder.map(|folder| format!("; looked for in {}", folder.display()));
    let (path, looked) = (path.display(), looked.unwrap_or_default());
    ConfigError::new(format!(
        "{named_by} {path}: cannot be read: {reason}{looked}"
    ))
}
