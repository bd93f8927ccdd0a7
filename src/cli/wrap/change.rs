//! The change that `wrap` makes to a settings file.

/// The change of the file.
pub(super) enum FileChange {
    /// No change, for this reason.
    None(&'static str),
    Text {
        text: String,
        /// The facts that the user should know before confirming.
        notes: Vec<String>,
    },
}
