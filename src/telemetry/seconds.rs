//! Milliseconds as the seconds that metrics and log lines have.

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a task's life are far below 2^53"
)]
pub fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
