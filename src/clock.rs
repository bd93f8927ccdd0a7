//! placeholder until merged
pub trait Clock: std::fmt::Debug + Send + Sync {
    fn now_ms(&self) -> u64;
}
