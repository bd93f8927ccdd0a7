//! Remembers what the server said of itself to each caller. What one caller was told, another may not know.
//! Pure, and bounded by count and bytes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::upstream::discovery::discovered::Discovered;

/// The number of callers that are remembered. Beyond it, the one that was remembered first is forgotten.
const CALLERS_MAX: usize = 1024;

/// The bytes that are remembered for all callers.
const BYTES_MAX: usize = 4 << 20;

/// A description larger than this is not remembered.
const WORDS_BYTES_MAX: usize = 256 << 10;

/// The caller that stands for all callers whose credentials the server does not get.
pub(in crate::upstream) const NOBODY: [u8; 16] = [0; 16];

#[derive(Debug, Default)]
pub(in crate::upstream) struct Remembered {
    by_caller: HashMap<[u8; 16], (u64, Arc<Discovered>)>,
    bytes: usize,
    /// The number of the last entry.
    newest: u64,
}

impl Remembered {
    pub(in crate::upstream) fn of(&self, caller: &[u8; 16]) -> Option<Arc<Discovered>> {
        let (_, words) = self.by_caller.get(caller)?;
        Some(Arc::clone(words))
    }

    pub(in crate::upstream) fn note(&mut self, caller: [u8; 16], words: &Arc<Discovered>) {
        // The old description goes even if the new one is too large to be kept, because it is out of date.
        self.forget(&caller);
        let bytes = words.bytes();
        if bytes > WORDS_BYTES_MAX {
            return;
        }
        while self.by_caller.len() >= CALLERS_MAX || self.bytes + bytes > BYTES_MAX {
            let oldest = self.by_caller.iter().min_by_key(|(_, (at, _))| *at);
            let Some(oldest) = oldest.map(|(caller, _)| *caller) else {
                return;
            };
            self.forget(&oldest);
        }
        self.newest += 1;
        self.bytes += bytes;
        let words = Arc::clone(words);
        self.by_caller.insert(caller, (self.newest, words));
    }

    fn forget(&mut self, caller: &[u8; 16]) {
        if let Some((_, words)) = self.by_caller.remove(caller) {
            self.bytes -= words.bytes();
        }
    }
}

impl Discovered {
    fn bytes(&self) -> usize {
        let others = [
            &self.server_info,
            &self.instructions,
            &self.supported_versions,
        ];
        let others = others.into_iter().flatten();
        self.capabilities.get().len() + others.map(|raw| raw.get().len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json::raw;

    fn words(instructions: &str) -> Arc<Discovered> {
        Arc::new(Discovered {
            capabilities: raw("{}".to_owned()).unwrap(),
            server_info: None,
            instructions: Some(raw(format!("\"{instructions}\"")).unwrap()),
            supported_versions: None,
        })
    }

    fn caller(number: usize) -> [u8; 16] {
        u128::try_from(number + 1).unwrap().to_be_bytes()
    }

    #[test]
    fn what_one_caller_heard_is_no_other_s() {
        let mut remembered = Remembered::default();
        remembered.note(caller(1), &words("a"));
        assert!(remembered.of(&caller(2)).is_none());
        assert!(remembered.of(&NOBODY).is_none());
        let own = remembered.of(&caller(1)).unwrap();
        assert_eq!(own.instructions.as_ref().unwrap().get(), "\"a\"");
    }

    #[test]
    fn it_is_bounded_and_the_newest_stay() {
        let mut remembered = Remembered::default();
        for number in 0..CALLERS_MAX + 10 {
            remembered.note(caller(number), &words("a"));
        }
        assert_eq!(remembered.by_caller.len(), CALLERS_MAX);
        assert!(remembered.of(&caller(9)).is_none());
        assert!(remembered.of(&caller(10)).is_some());

        let long = words(&"x".repeat(WORDS_BYTES_MAX / 2));
        for number in 0..100 {
            remembered.note(caller(number), &long);
            assert!(remembered.bytes <= BYTES_MAX);
        }
        assert!(remembered.of(&caller(99)).is_some());
        remembered.note(caller(99), &words(&"x".repeat(WORDS_BYTES_MAX)));
        assert!(remembered.of(&caller(99)).is_none(), "too long");
    }
}
