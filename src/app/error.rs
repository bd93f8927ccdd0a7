//! Why raincheck cannot start.

/// Why raincheck cannot start, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AppError(pub(super) String);

/// An error and its causes on one line.
pub(super) fn line(error: impl std::error::Error) -> AppError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    AppError(text)
}
