//! A histogram of the durations of the calls of one tool: it is small, and old calls lose their weight. Pure.
//!
//! A bucket is an eighth of a doubling wide, so that a duration is known to 13 % at worst. Later calls count more: when the
//! weights reach a bound, all are halved, and a week halves them, too.

/// The buckets below an octave's end, of which each octave has eight.
const STEPS: u64 = 8;
const STEPS_BITS: u32 = 3;

/// Durations from 0 ms to 37 hours. Longer ones count as the longest.
const BUCKETS: usize = 200;

/// The weight of one call. Halving must leave something of it.
const CALL: u32 = 1024;

/// The weight at which all weights are halved: of the last 256 calls or so.
const WEIGHT_MAX: u64 = 256 * CALL as u64;

/// The time in which an old call comes to count half as much.
const HALF_LIFE_MS: u64 = 7 * 24 * 3_600_000;

/// The durations of the calls of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durations {
    weights: [u32; BUCKETS],
    /// The sum of the weights.
    weight: u64,
    /// All calls that were ever counted.
    seen: u64,
    /// The half-life, counted from 1970, to which the weights are decayed.
    epoch: u64,
}

impl Durations {
    pub fn new(now_ms: u64) -> Self {
        Self {
            weights: [0; BUCKETS],
            weight: 0,
            seen: 0,
            epoch: now_ms / HALF_LIFE_MS,
        }
    }

    /// The calls that were counted.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the number of calls that the weights stand for now.
    pub fn calls(&self) -> u64 {
        self.weight / u64::from(CALL)
    }

    /// Counts one call, which took this long.
    pub fn count(&mut self, took_ms: u64, now_ms: u64) {
        self.age_to(now_ms / HALF_LIFE_MS);
        if let Some(weight) = self.weights.get_mut(bucket(took_ms)) {
            *weight = weight.saturating_add(CALL);
            self.weight += u64::from(CALL);
        }
        self.seen = self.seen.saturating_add(1);
        self.bound();
    }

    /// Counts the calls that were counted elsewhere.
    pub fn merge(&mut self, other: &Self) {
        self.age_to(other.epoch);
        // The line above makes this epoch the later one, so the difference is not negative.
        let younger_by = self.epoch - other.epoch;
        for (weight, more) in self.weights.iter_mut().zip(other.weights) {
            *weight = weight.saturating_add(halved(more, younger_by));
        }
        self.weigh();
        self.seen = self.seen.saturating_add(other.seen);
        self.bound();
    }

    /// The duration that this many of 1000 calls do not exceed. `None`: nothing is known.
    pub fn quantile(&self, of_1000: u64) -> Option<u64> {
        self.remaining(0, of_1000)
    }

    /// Returns the upper bound of the time that a call of this age still takes, in this many of 1000 cases. `None`:
    /// too few calls took longer than this one has taken already.
    pub fn remaining(&self, age_ms: u64, of_1000: u64) -> Option<u64> {
        let parts = || self.parts(age_ms);
        // The sum of all is kept, so that the usual question adds nothing up.
        let left = match age_ms {
            0 => self.weight,
            _ => parts().map(|part| part.weight).sum(),
        };
        if left == 0 || left * 100 < self.weight {
            return None;
        }
        let target = left * of_1000.min(1000) / 1000;
        let mut before = 0;
        for part in parts() {
            if before + part.weight >= target {
                let inside = (target - before) * (part.end - part.start) / part.weight;
                return Some(part.start + inside - age_ms);
            }
            before += part.weight;
        }
        None
    }

    /// The weights that are not nothing, by bucket: what the store keeps.
    pub fn sparse(&self) -> (u64, u64, Vec<(u8, u32)>) {
        let weights = (0_u8..).zip(self.weights);
        let some = weights.filter(|(_, weight)| *weight > 0).collect();
        (self.seen, self.epoch, some)
    }

    /// From what [`Self::sparse`] gave. Buckets that no duration has are left out.
    pub fn from_sparse(seen: u64, epoch: u64, sparse: &[(u8, u32)]) -> Self {
        let mut weights = [0; BUCKETS];
        for (place, weight) in sparse {
            if let Some(to) = weights.get_mut(usize::from(*place)) {
                *to = *weight;
            }
        }
        let mut durations = Self {
            weights,
            weight: 0,
            seen,
            epoch,
        };
        durations.weigh();
        durations.bound();
        durations
    }

    /// The weights of calls that took longer than this, with where their buckets lie beyond it.
    fn parts(&self, age_ms: u64) -> impl Iterator<Item = BucketPart> {
        let weights = self.weights.iter().enumerate().skip(bucket(age_ms));
        let some = weights.filter(|(_, weight)| **weight > 0);
        some.filter_map(move |(place, weight)| {
            let (start, end) = bucket_bounds(place);
            let from = start.max(age_ms);
            // The calls of a bucket count as spread evenly over it, because nothing finer is kept.
            let weight = u64::from(*weight) * end.checked_sub(from)? / (end - start);
            (weight > 0).then_some(BucketPart {
                weight,
                start: from,
                end,
            })
        })
    }

    fn weigh(&mut self) {
        self.weight = self.weights.iter().map(|weight| u64::from(*weight)).sum();
    }

    fn age_to(&mut self, epoch: u64) {
        // Weights that were halved cannot grow back, so an earlier epoch leaves them as they are.
        if epoch > self.epoch {
            let by = epoch - self.epoch;
            for weight in &mut self.weights {
                *weight = halved(*weight, by);
            }
            self.epoch = epoch;
            self.weigh();
        }
    }

    fn bound(&mut self) {
        // Stored weights may have any size, so that one halving may not be enough.
        while self.weight > WEIGHT_MAX {
            for weight in &mut self.weights {
                *weight /= 2;
            }
            self.weigh();
        }
    }
}

/// The part of one bucket that is left for a call of some age.
struct BucketPart {
    weight: u64,
    start: u64,
    end: u64,
}

fn halved(weight: u32, times: u64) -> u32 {
    let times = u32::try_from(times).unwrap_or(u32::MAX);
    weight.checked_shr(times).unwrap_or(0)
}

/// The bucket of a duration. Up to 16 ms each millisecond has one; from there each doubling has eight.
pub fn bucket(ms: u64) -> usize {
    let octave = ms.max(STEPS).ilog2() - STEPS_BITS;
    let step = (ms >> octave) + u64::from(octave) * STEPS;
    usize::try_from(step).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The durations of a bucket: from the first to before the second.
pub fn bucket_bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return (bucket, bucket + 1);
    }
    let octave = bucket / STEPS - 1;
    let start = (STEPS + bucket % STEPS) << octave;
    (start, start + (1 << octave))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: &[u64]) -> Durations {
        let mut all = Durations::new(0);
        for took in durations {
            all.count(*took, 0);
        }
        all
    }

    #[test]
    fn every_duration_has_the_bucket_that_holds_it() {
        let mut last = 0;
        for ms in (0..100_000).chain([1 << 20, (1 << 27) - 1]) {
            let place = bucket(ms);
            let (start, end) = bucket_bounds(place);
            assert!(start <= ms && ms < end, "{ms}: {place} is {start}..{end}");
            assert!(place >= last && (end - start) * 8 <= start.max(8), "{ms}");
            last = place;
        }
        assert_eq!(bucket((1 << 27) - 1), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_as_fine_as_the_buckets() {
        let spread: Vec<u64> = (1..=100).map(|n| n * 100).collect();
        let durations = of(&spread);
        for (of_1000, exact) in [(50, 500), (500, 5_000), (900, 9_000)] {
            let found = durations.quantile(of_1000).unwrap();
            assert!(found.abs_diff(exact) <= exact / 8, "{of_1000}: {found}");
        }
        assert_eq!(Durations::new(0).quantile(500), None);
    }

    #[test]
    fn a_call_that_goes_on_is_measured_by_those_that_took_longer() {
        let durations = of(&[1_000, 1_000, 1_000, 60_000]);
        assert!(durations.quantile(500).unwrap() < 1_100);
        let left = durations.remaining(30_000, 500).unwrap();
        assert!((24_000..=32_000).contains(&left), "{left}");
        assert_eq!(durations.remaining(120_000, 500), None, "none took so long");
    }

    #[test]
    fn later_calls_count_more() {
        let mut durations = of(&[60_000; 300]);
        for _ in 0..300 {
            durations.count(1_000, 0);
        }
        assert!(durations.quantile(500).unwrap() < 1_100);
        assert!(durations.calls() <= 256 && durations.seen() == 600);
        // And what is old counts less, until nothing of it is left.
        let calls = durations.calls();
        durations.count(1_000, HALF_LIFE_MS);
        assert_eq!(durations.calls(), calls / 2 + 1);
        durations.count(1_000, HALF_LIFE_MS * 100);
        assert_eq!(durations.calls(), 1);
    }

    #[test]
    fn merging_is_as_counting_all() {
        let (some, more) = ([10, 20_000, 400], [3_000, 3_000, 50]);
        let mut merged = of(&some);
        merged.merge(&of(&more));
        assert_eq!(merged, of(&[some, more].concat()));
        // Whichever of the two is older.
        let mut late = Durations::new(HALF_LIFE_MS);
        late.count(5, HALF_LIFE_MS);
        let (mut one, mut other) = (merged.clone(), late.clone());
        one.merge(&late);
        other.merge(&merged);
        assert_eq!(one, other);
    }

    #[test]
    fn it_is_kept_in_a_few_numbers() {
        let durations = of(&[1_000, 1_000, 60_000]);
        let (seen, epoch, sparse) = durations.sparse();
        assert_eq!((seen, sparse.len()), (3, 2));
        assert_eq!(Durations::from_sparse(seen, epoch, &sparse), durations);
        let wild = Durations::from_sparse(1, 0, &[(255, 9), (3, u32::MAX)]);
        assert!(wild.calls() <= 256);
    }
}
