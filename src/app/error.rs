//! Why raincheck cannot start.

use crate::base::io_reason::with_causes;

/// Why raincheck cannot start, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AppError(pub(super) String);

/// An error and its causes on one line.
pub(super) fn line(error: impl std::error::Error) -> AppError {
    AppError(with_causes(&error))
}
