//! The pauses between the legs of a call whose modern server asks nothing and wants to be called again.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(10);

/// Each pause is twice as long as the one before, so that a long call costs few requests.
#[derive(Debug, Default)]
pub struct Pauses {
    last: Duration,
}

impl Pauses {
    /// Returns the time to wait before the next request.
    pub fn longer(&mut self) -> Duration {
        self.last = (self.last * 2).clamp(FIRST, LAST);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..6).map(|_| pauses.longer().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    }
}
