//! References that are served while the page stays evicted.
//!
//! A front-end that can serve a reference without a frame (the replay, where it costs a miss but evicts nothing) asks
//! an *admission filter* first. The filter is a plain function of the page's shadow entry and of a threshold that the
//! policy has published. So it can be asked without the policy's lock, while the policy is at work. References served
//! are reported by count.

use super::Absent;
use crate::memory::Memory;
use crate::page::Shadow;

/// What an evicted page must be worth to come in, in the policy's own terms and as of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionThreshold {
    /// The policy's clock.
    pub clock: u64,
    /// Pages below this rank stay evicted; 0: every page comes in.
    pub min_rank: u64,
}

/// Returns the updated shadow entry if the page should stay evicted even with the reference being served, `None` to
/// admit it.
pub type AdmissionFilter = fn(Shadow, AdmissionThreshold) -> Option<Shadow>;

/// A policy that knows what evicted pages are worth.
pub trait Bypass {
    /// The filter; the same each time.
    fn admission_filter(&self) -> AdmissionFilter;

    /// What the filter is to be given from now on. Changes with evictions and with [`Bypass::bypassed`].
    fn admission_threshold(&self) -> AdmissionThreshold;

    /// Pages that stayed evicted were served `references` references since the last call.
    fn bypassed<M: Memory>(&mut self, references: usize, memory: &mut M);
}

impl Bypass for Absent {
    fn admission_filter(&self) -> AdmissionFilter {
        match *self {}
    }
    fn admission_threshold(&self) -> AdmissionThreshold {
        match *self {}
    }
    fn bypassed<M: Memory>(&mut self, _references: usize, _memory: &mut M) {
        match *self {}
    }
}
