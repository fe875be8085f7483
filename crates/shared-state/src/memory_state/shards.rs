//! A map in shards, each behind a lock of its own and with a most of its own.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, MutexGuard};

use base::MutexExt as _;

/// Shards of a map: more than there are cores, and few enough to lock all of them.
const SHARDS: usize = 32;

/// A map in shards.
#[derive(Debug)]
pub(super) struct Shards<K, V> {
    hasher: RandomState,
    shards: Box<[Mutex<HashMap<K, V>>]>,
    each_max: usize,
}

impl<K: Hash + Eq, V> Shards<K, V> {
    /// With room for about so many.
    pub(super) fn new(most: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards, each_max: most.div_ceil(SHARDS) }
    }

    /// Most entries of one shard.
    pub(super) fn each_max(&self) -> usize {
        self.each_max
    }

    /// Which shard has this key.
    pub(super) fn place<Q: Hash + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        usize::try_from(self.hasher.hash_one(key) % u64::try_from(SHARDS).unwrap_or(1)).unwrap_or(0)
    }

    /// The shard of this key. `None` cannot be: every place is one of the shards.
    pub(super) fn lock<Q: Hash + ?Sized>(&self, key: &Q) -> Option<MutexGuard<'_, HashMap<K, V>>>
    where
        K: Borrow<Q>,
    {
        self.at(self.place(key))
    }

    /// The shard at this place.
    pub(super) fn at(&self, place: usize) -> Option<MutexGuard<'_, HashMap<K, V>>> {
        // A step is plain arithmetic on plain data: if one panicked, what it left is still a state.
        self.shards.get(place).map(|shard| shard.lock_unpoisoned())
    }

    /// Every shard in turn, one lock at a time.
    pub(super) fn each(&self, mut look: impl FnMut(&mut HashMap<K, V>)) {
        for shard in &*self.shards {
            look(&mut shard.lock_unpoisoned());
        }
    }
}
