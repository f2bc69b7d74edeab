//! Evicted pages that keep their contents until their frame is reused.

use super::Absent;
use crate::frames::FreePools;

/// A policy that keeps a reserve of free frames.
pub trait CachedPages {
    /// The free pools in which the front-end keeps evicted pages ([`crate::frames::CachedFrames`]) until their frame is
    /// reused; `None`: what is evicted is gone. A page that comes back this way is admitted as any other, only that
    /// nothing is read and no shadow is handed over.
    fn pools(&self) -> Option<FreePools>;

    /// Resident pages at which the front-end asks for room, given its limit. A policy that keeps a reserve of free
    /// frames asks before the limit is reached: then one call of [`super::Policy::reclaim`] is enough.
    fn reclaim_threshold(&self, limit: usize) -> usize;
}

impl CachedPages for Absent {
    fn pools(&self) -> Option<FreePools> {
        match *self {}
    }
    fn reclaim_threshold(&self, _limit: usize) -> usize {
        match *self {}
    }
}
