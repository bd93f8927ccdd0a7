//! The options of raincheck that `wrap` writes into the client's settings.

use std::path::PathBuf;

use clap::Args;

/// The options of raincheck that `wrap` writes into the client's settings.
#[derive(Debug, Args)]
pub(super) struct LaunchOptions {
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "undo",
        help = "Where its tasks live, such as redis://HOST [default: a file in the state directory]"
    )]
    pub(super) store: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "undo",
        help = "With Redis: the name of this server there"
    )]
    pub(super) namespace: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "undo",
        help = "Its settings: see config.example.toml"
    )]
    pub(super) config: Option<PathBuf>,
}
