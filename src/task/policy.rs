//! placeholder until merged
pub fn poll_interval_at(base_ms: u64, age_ms: u64) -> u64 {
    let _ = age_ms;
    base_ms
}
