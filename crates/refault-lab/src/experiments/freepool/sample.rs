//! Fragmentation over time.

use refault_core::frames::{Fragmentation, FrameAllocator, FreePool};

use super::machine::Nanos;

/// Free memory at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub at: Nanos,
    /// All pools.
    pub all: Fragmentation,
    /// The pools that ordinary requests are served from first.
    pub ordinary: Fragmentation,
    /// Free frames with a cached page.
    pub cached: u32,
}

/// Takes a sample when its time has come.
pub(super) struct Sampler {
    every: Nanos,
    next: Nanos,
    pub samples: Vec<Sample>,
}

impl Sampler {
    pub fn new(every: Nanos) -> Sampler {
        Sampler { every, next: every, samples: Vec::new() }
    }

    #[inline]
    pub fn sample(&mut self, now: Nanos, allocator: &FrameAllocator, cached: u32) {
        if now < self.next {
            return;
        }
        self.next = (now / self.every + 1) * self.every;
        let ordinary = allocator.fragmentation_of(&[FreePool::Default, FreePool::Direct]);
        self.samples.push(Sample { at: now, all: allocator.fragmentation(), ordinary, cached });
    }
}

/// The mean over samples of something that can be said of each.
pub(super) fn mean(samples: &[Sample], what: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(what).sum::<f64>() / samples.len().max(1) as f64
}
