//! Fair shares: how much of something one caller may have at the same time, so that no caller takes all of it.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::account::Account;
use crate::base::limit_fill::LimitFill;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::Caller;

/// The share that each caller has now of one thing that all callers need.
#[derive(Debug)]
pub struct Shares {
    of_each: AtomicUsize,
    /// As many entries as there are [`Share`]s at most.
    taken: Mutex<PrehashedMap<Account, usize>>,
    /// Shows operators how near a caller came to its share.
    fill: Option<&'static LimitFill>,
}

/// A part of a caller's share. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    account: Account,
    amount: usize,
}

impl Shares {
    /// `of_each`: the most of one caller.
    pub fn new(of_each: usize) -> Arc<Self> {
        Arc::new(Self::with(of_each, None))
    }

    /// The same for a limit of operators.
    pub fn of_limit(of_each: usize, fill: &'static LimitFill) -> Arc<Self> {
        fill.set_limit(of_each);
        Arc::new(Self::with(of_each, Some(fill)))
    }

    fn with(of_each: usize, fill: Option<&'static LimitFill>) -> Self {
        Self {
            of_each: AtomicUsize::new(of_each),
            taken: Mutex::default(),
            fill,
        }
    }

    /// Changes the most of one caller. What a caller has beyond it, it keeps.
    pub fn resize(&self, of_each: usize) {
        self.of_each.store(of_each, Ordering::Relaxed);
        if let Some(fill) = self.fill {
            fill.set_limit(of_each);
        }
    }

    /// Takes so much for the caller. `None`: with it, the caller would have more than one caller may.
    pub fn take(self: &Arc<Self>, caller: Caller, amount: usize) -> Option<Share> {
        let of_each = self.of_each.load(Ordering::Relaxed);
        let account = caller.account();
        let taken = match self.taken.lock().entry(account) {
            Entry::Occupied(mut before) => {
                let taken = before.get().saturating_add(amount);
                if taken > of_each {
                    return None;
                }
                before.insert(taken);
                taken
            }
            Entry::Vacant(none) if amount <= of_each => *none.insert(amount),
            Entry::Vacant(_) => return None,
        };
        if let Some(fill) = self.fill {
            fill.reached(taken);
        }
        Some(Share {
            shares: Arc::clone(self),
            account,
            amount,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.shares.taken.lock();
        if let Entry::Occupied(mut taken) = all.entry(self.account) {
            let left = taken.get().saturating_sub(self.amount);
            if left == 0 {
                // An entry of zero would stay for every caller that ever came.
                taken.remove();
            } else {
                taken.insert(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_its_share_and_no_more() {
        let shares = Shares::new(3);
        let [alice, bob] = [1, 2].map(|byte| Caller::from_bytes([byte; 16]));
        let first = shares.take(alice, 2).unwrap();
        assert!(shares.take(alice, 2).is_none());
        let second = shares.take(alice, 1).unwrap();
        assert!(shares.take(alice, 1).is_none());
        let of_bob = shares.take(bob, 3).unwrap();
        drop(first);
        let third = shares.take(alice, 2).unwrap();
        drop((second, third, of_bob));
        assert!(shares.taken.lock().is_empty(), "nothing is kept of them");
        assert!(shares.take(alice, usize::MAX).is_none());
        shares.resize(4);
        assert!(shares.take(alice, 4).is_some() && shares.take(alice, 5).is_none());
    }
}
