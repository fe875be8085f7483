//! How many of something there may be, in all and of one principal, so that nobody takes the places of everybody.
//!
//! Invariants
//! - QUOTA-1: there are never more than either limit, also when many come at once.
//! - QUOTA-2: a place is given back when what held it is dropped, and not before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Places.
#[derive(Debug)]
pub(crate) struct Quota {
    all_max: usize,
    each_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_principal: HashMap<String, usize>,
}

/// One place. Dropped, it is free again.
#[derive(Debug)]
pub(crate) struct Place {
    quota: Arc<Quota>,
    principal: String,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPlace {
    /// Everybody together has too many.
    #[error("there are too many")]
    All,
    /// This principal has too many.
    #[error("this principal has too many")]
    Own,
}

impl Quota {
    pub(crate) fn new(all_max: usize, each_max: usize) -> Arc<Self> {
        Arc::new(Self { all_max, each_max, taken: Mutex::default() })
    }

    /// A place for this principal.
    pub(crate) fn take(self: &Arc<Self>, principal: &str) -> Result<Place, NoPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has too many is told so, whatever the others have.
        if taken.by_principal.get(principal).is_some_and(|own| *own >= self.each_max) {
            return Err(NoPlace::Own);
        }
        if taken.all >= self.all_max {
            return Err(NoPlace::All);
        }
        taken.all += 1;
        *taken.by_principal.entry(principal.to_owned()).or_default() += 1;
        Ok(Place { quota: Arc::clone(self), principal: principal.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.quota.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        if let Some(own) = taken.by_principal.get_mut(&self.principal) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.by_principal.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_takes_too_many_leaves_room_for_others_and_places_come_back() {
        let quota = Quota::new(4, 3);
        let mine: Vec<Place> = (0..3).map(|_| quota.take("me").unwrap()).collect();
        assert_eq!(quota.take("me").unwrap_err(), NoPlace::Own);
        let yours = quota.take("you").unwrap();
        assert_eq!(quota.take("you").unwrap_err(), NoPlace::All);
        drop(mine);
        let again: Vec<Place> = (0..3).map(|_| quota.take("me").unwrap()).collect();
        drop((again, yours));
        let taken = quota.taken.lock().unwrap();
        assert_eq!((taken.all, taken.by_principal.len()), (0, 0), "nothing is remembered of nobody");
    }
}
