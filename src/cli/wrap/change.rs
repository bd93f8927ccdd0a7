//! What shall become of a settings file.

/// What shall become of the file.
pub(super) enum FileChange {
    /// Nothing, for this reason.
    None(&'static str),
    Text {
        text: String,
        /// What the user should know before saying yes.
        notes: Vec<String>,
    },
}
