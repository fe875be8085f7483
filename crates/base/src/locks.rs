//! Locks that are taken whether or not somebody panicked under them.
//!
//! Service code does not panic (the lints see to it), and a task that does so all the same ends with its call and is reported. If
//! its lock refused everybody from then on, one failed call would be a dead server. What stands under such a lock must therefore be
//! whole after every statement.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Taking a [`Mutex`] without asking about poison.
///
/// ```
/// use gantry_base::MutexExt as _;
/// let count = std::sync::Mutex::new(0);
/// *count.lock_unpoisoned() += 1;
/// ```
pub trait MutexExt<T: ?Sized> {
    /// Waits for the lock and takes it.
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T>;
}

impl<T: ?Sized> MutexExt<T> for Mutex<T> {
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same for a [`RwLock`].
pub trait RwLockExt<T: ?Sized> {
    /// Waits for the lock and takes it, beside other readers.
    fn read_unpoisoned(&self) -> RwLockReadGuard<'_, T>;

    /// Waits for the lock and takes it alone.
    fn write_unpoisoned(&self) -> RwLockWriteGuard<'_, T>;
}

impl<T: ?Sized> RwLockExt<T> for RwLock<T> {
    fn read_unpoisoned(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_unpoisoned(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_under_which_somebody_panicked_is_taken_like_any_other() {
        let (mutex, shared) = (Mutex::new(1), RwLock::new(2));
        std::thread::scope(|scope| {
            let panics = || {
                let _held = (mutex.lock(), shared.write());
                panic!("under the lock");
            };
            assert!(scope.spawn(panics).join().is_err());
        });
        assert!(mutex.is_poisoned() && shared.is_poisoned());
        assert_eq!((*mutex.lock_unpoisoned(), *shared.read_unpoisoned()), (1, 2));
        *shared.write_unpoisoned() = 3;
        assert_eq!(*shared.read_unpoisoned(), 3);
    }
}
