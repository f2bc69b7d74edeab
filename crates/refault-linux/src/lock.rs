//! A lock that needs nothing but a futex: for code that may interrupt anything.
//!
//! Invariants: who holds it takes no signal handler of the program's and touches no managed memory that may be missing;
//! it is not reentrant. Cost: one exchange without contention.
//!
//! ```
//! use refault_linux::lock::Lock;
//!
//! static COUNT: Lock<u32> = Lock::new(0);
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| *COUNT.lock() += 1);
//!     }
//! });
//! assert_eq!(*COUNT.lock(), 4);
//! ```

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::errno::ETIMEDOUT;
use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;
/// Some 6 µs where a pause takes 11 ns, about as long as a fault holds the lock. Four times as many give a few more
/// operations for much more processor time.
const SPINS: u32 = 500;

/// See the module.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through the lock.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Lock<T> {
        Lock { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes it.
    pub fn lock(&self) -> Held<'_, T> {
        self.take(|| sys::wait(&self.word, WAITED))
    }

    /// Takes it, and calls `look` after each second of waiting.
    pub fn lock_or_look(&self, look: impl Fn()) -> Held<'_, T> {
        const PATIENCE_NANOSECONDS: u64 = 1_000_000_000;
        self.take(|| {
            if sys::wait_for(&self.word, WAITED, PATIENCE_NANOSECONDS) == ETIMEDOUT {
                look();
            }
        })
    }

    fn take(&self, wait: impl Fn()) -> Held<'_, T> {
        for _ in 0..SPINS {
            // Looked at first: who holds it needs its line of the cache.
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Held { lock: self };
            }
            core::hint::spin_loop();
        }
        while self.word.swap(WAITED, Ordering::Acquire) != FREE {
            wait();
        }
        Held { lock: self }
    }

    /// In the only thread of a forked child: the thread that held the lock is not there.
    ///
    /// # Safety
    /// No other thread runs, and the value is whole.
    pub unsafe fn free(&self) {
        self.word.store(FREE, Ordering::Release);
    }
}

/// The lock is held while this lives.
pub struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, by this value alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.lock.word.swap(FREE, Ordering::Release) == WAITED {
            sys::wake(&self.lock.word);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn who_waits_long_looks() {
        let (lock, looks) = (Lock::new(()), AtomicU32::new(0));
        let held = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                lock.lock_or_look(|| _ = looks.fetch_add(1, Ordering::SeqCst));
            });
            while looks.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            drop(held);
        });
    }

    #[test]
    fn nobody_is_in_twice() {
        let lock = std::sync::Arc::new(Lock::new((0u64, 0u64)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut both = lock.lock();
                        assert_eq!(both.0, both.1);
                        both.0 += 1;
                        both.1 += 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
        assert_eq!(*lock.lock(), (80_000, 80_000));
    }
}
