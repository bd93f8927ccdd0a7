//! The sessions that a pool keeps, and which request gets one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::base::lock::Mutex;
use crate::upstream::pool::key::PoolKey;
use crate::upstream::pool::permits::{FreedSession, Granted, PoolPermits, SessionPermit, UsedUp};
use crate::upstream::pool::rule::{self, MayAsk, Sharing};
use crate::upstream::pool::slot::{PooledSession, Slot, SlotHome, SlotUse};

/// The lock of the sessions is taken before that of the permits, and a permit may be dropped under it.
#[derive(Debug)]
pub(in crate::upstream) struct KeptSessions<S: PooledSession> {
    by_key: HashMap<PoolKey, Vec<Arc<Slot<S>>>>,
    permits: Arc<PoolPermits<SlotUse<S>>>,
    sharing: Sharing,
    home: Weak<dyn SlotHome<S>>,
}

impl<S: PooledSession> SlotHome<S> for Mutex<KeptSessions<S>> {
    fn freed(&self, slot: &Arc<Slot<S>>) {
        // What is refused is dropped without the lock, which dropping takes again.
        let _refused = self.lock().give_on(slot);
    }
}

/// The result that a request gets from the pool at once.
#[derive(Debug)]
pub(super) enum PoolChoice<S: PooledSession> {
    Slot(SlotUse<S>),
    /// Neither a session nor a permit for one.
    Nothing(UsedUp),
}

impl<S: PooledSession> KeptSessions<S> {
    pub(super) fn new(
        sharing: Sharing,
        permits: &Arc<PoolPermits<SlotUse<S>>>,
    ) -> Arc<Mutex<Self>> {
        Arc::new_cyclic(|home: &Weak<Mutex<Self>>| {
            Mutex::new(Self {
                by_key: HashMap::new(),
                permits: Arc::clone(permits),
                sharing,
                home: Weak::<Mutex<Self>>::clone(home),
            })
        })
    }

    /// The slot to use, and the place there: both in one step, so that no two calls find the same session free.
    pub(super) fn choose(&mut self, key: &PoolKey, asks: MayAsk, has_spare: bool) -> PoolChoice<S> {
        let sharing = self.sharing;
        let mut none = Vec::new();
        let slots = self.by_key.get_mut(key).unwrap_or(&mut none);
        slots.retain(|slot| !slot.is_over());
        let fitting = rule::fitting(sharing, asks, slots, |slot| slot.state());
        if let Some(slot) = fitting.and_then(|at| slots.get(at)) {
            return PoolChoice::Slot(SlotUse::of(slot, asks));
        }
        let used_up = match self.permits.try_take(Some(key.account())) {
            Ok(permit) => return PoolChoice::Slot(self.add(key, asks, Some(permit))),
            // The spare process holds a permit already, but a caller that has its share gets no further one.
            Err(UsedUp::Everything) if has_spare => {
                return PoolChoice::Slot(self.add(key, asks, None));
            }
            Err(used_up) => used_up,
        };
        let shared = rule::shared_at_the_limit(sharing, slots, |slot| slot.state());
        let Some(slot) = shared.and_then(|at| slots.get(at)).cloned() else {
            return PoolChoice::Nothing(used_up);
        };
        // There will be room for the next. A process holds state, so the one that is shared is not ended for it.
        let is_kept = sharing == Sharing::UntilAsked;
        let kept = is_kept.then(|| SlotUse::of(&slot, asks));
        self.close_longest_unused(used_up);
        PoolChoice::Slot(kept.unwrap_or_else(|| SlotUse::of(&slot, asks)))
    }

    /// A slot for a session that will be started.
    pub(super) fn add(
        &mut self,
        key: &PoolKey,
        asks: MayAsk,
        permit: Option<SessionPermit>,
    ) -> SlotUse<S> {
        let slot = Slot::new(key.clone(), Weak::clone(&self.home), permit);
        let first = SlotUse::of(&slot, asks);
        self.by_key.entry(key.clone()).or_default().push(slot);
        first
    }

    /// The slot for a request that got a permit: one that fits by now, or a new one. What is left over is dropped by
    /// the caller, without the lock.
    pub(super) fn enter(
        &mut self,
        key: &PoolKey,
        asks: MayAsk,
        permit: SessionPermit,
    ) -> (SlotUse<S>, Vec<Granted<SlotUse<S>>>) {
        let sharing = self.sharing;
        let slots = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let fitting = rule::fitting(sharing, asks, slots, |slot| slot.state());
        let fitting = fitting.and_then(|at| slots.get(at));
        if let Some(slot) = fitting.filter(|slot| !slot.is_over()) {
            return (SlotUse::of(slot, asks), vec![Granted::Permit(permit)]);
        }
        let first = self.add(key, asks, Some(permit));
        let mut untaken = Vec::new();
        if sharing != Sharing::Never {
            // The others of the key need no session of their own.
            let is_fit =
                |asks| rule::fitting(sharing, asks, &[&first.slot], |slot| slot.state()).is_some();
            while let Some((asks, gets)) = self.permits.take_for(key, is_fit) {
                let shared = SlotUse::of(&first.slot, asks);
                untaken.extend(gets.send(Granted::Slot(shared)).err());
            }
        }
        (first, untaken)
    }

    /// Gives a session that became free to the request whose turn it is, or ends it so that another can be started for
    /// that request. Returns the right of a request that left meanwhile.
    fn give_on(&mut self, slot: &Arc<Slot<S>>) -> Option<Granted<SlotUse<S>>> {
        if slot.is_vacant() {
            self.forget(slot);
            return None;
        }
        let slots = self.by_key.get(&slot.key)?;
        // A session that was forgotten is lost or about to be closed, so it goes to no other request.
        let is_kept = slots.iter().any(|kept| Arc::ptr_eq(kept, slot));
        let (_, session) = slot.unused().filter(|_| is_kept)?;
        let sharing = self.sharing;
        let is_fit = |asks| rule::fitting(sharing, asks, &[slot], |slot| slot.state()).is_some();
        match self.permits.next_for(&slot.key, is_fit) {
            FreedSession::Give(asks, gets) => {
                gets.send(Granted::Slot(SlotUse::of(slot, asks))).err()
            }
            FreedSession::Close => {
                session.close_unused();
                self.forget(slot);
                None
            }
            FreedSession::Keep => None,
        }
    }

    /// Removes a slot whose session could not be started, and puts back a slot whose session was started for a caller
    /// that waited longer. A session that no caller awaits any more is passed on. Returns the right that is left, as
    /// [`Self::give_on`] does.
    pub(super) fn keep_or_forget(&mut self, slot: &Arc<Slot<S>>) -> Option<Granted<SlotUse<S>>> {
        let slots = self.by_key.entry(slot.key.clone()).or_default();
        let at = slots.iter().position(|kept| Arc::ptr_eq(kept, slot));
        match (slot.session.get(), at) {
            (None, Some(at)) => drop(slots.remove(at)),
            (Some(_), None) => slots.push(Arc::clone(slot)),
            (None, None) | (Some(_), Some(_)) => {}
        }
        if slots.is_empty() {
            self.by_key.remove(&slot.key);
        }
        self.give_on(slot)
    }

    /// Gives the session to no other call. Its permit comes back at once, even if a call still uses the session.
    pub(super) fn forget(&mut self, slot: &Arc<Slot<S>>) {
        self.retain(|kept| !Arc::ptr_eq(kept, slot));
        drop(slot.permit.lock().take());
    }

    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&Arc<Slot<S>>) -> bool) {
        self.by_key.retain(|_, slots| {
            slots.retain(|slot| is_kept(slot));
            !slots.is_empty()
        });
    }

    /// Ends the session that has been unused for longest, if its permit helps the request. False: all such
    /// sessions are in use.
    pub(super) fn close_longest_unused(&mut self, used_up: UsedUp) -> bool {
        let helping = self.by_key.iter();
        let helping = helping.filter(|(key, _)| used_up.is_helped_by_end_of(key.account()));
        let unused = helping
            .flat_map(|(_, slots)| slots)
            .filter_map(|slot| slot.unused());
        let Some((_, longest)) = unused.min_by_key(|(since, _)| *since) else {
            return false;
        };
        longest.close_unused();
        // A permit that is kept with the slot is free now.
        self.retain(|slot| !slot.is_over());
        true
    }

    /// Returns `true` if the caller has a session, or one is being started for it.
    pub(super) fn has_any_of(&self, caller: [u8; 16]) -> bool {
        self.by_key.keys().any(|key| key.caller == caller)
    }

    /// An open session of that caller, whatever was declared on it.
    pub(super) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<S>> {
        let own = self.by_key.iter().filter(|(key, _)| key.caller == caller);
        let mut sessions = own
            .flat_map(|(_, slots)| slots)
            .filter_map(|slot| slot.session.get());
        sessions.find(|session| session.is_open()).cloned()
    }
}
