//! What other policies and sizes would have missed of what the cache was asked for ([`CacheOptions::what_if`]).
//! Only a cache that is asked keeps simulations: their records are its memory, and can be larger than a small cache's
//! pages.
//!
//! [`CacheOptions::what_if`]: crate::CacheOptions::what_if

use refault_core::miniature::{Estimate, Miniatures, shift_for};
use refault_store::PAGE_SIZE;

use crate::error::MakeError;
use crate::options::{WhatIf, WouldMiss};

const PAGE: u64 = PAGE_SIZE as u64;

/// Names policies, with spaces between them, where no option does.
const VARIABLE: &str = "REFAULT_CACHE_WHAT_IF";

/// The questions of an option, or else of the environment.
pub(crate) fn asked(option: &WhatIf) -> WhatIf {
    let mut asked = option.clone();
    if asked.policies.is_empty() {
        let named = std::env::var(VARIABLE).unwrap_or_default();
        asked.policies = named.split_whitespace().map(str::to_owned).collect();
    }
    asked
}

/// Miniatures for the questions, over a sample that leaves the smallest memory enough pages.
pub(crate) fn miniatures(what_if: &WhatIf, frames: u64) -> Result<Option<Box<Miniatures>>, MakeError> {
    if what_if.policies.is_empty() {
        return Ok(None);
    }
    let own = [frames / 2, frames, frames * 2, frames * 4];
    let asked: Vec<u64> = what_if.memory.iter().map(|bytes| bytes / PAGE).collect();
    let pages = if asked.is_empty() { &own[..] } else { &asked };
    if let Some(small) = what_if.memory.iter().find(|bytes| **bytes < PAGE) {
        return Err(MakeError::TooSmall(*small, PAGE));
    }
    let policies: Vec<&str> = what_if.policies.iter().map(String::as_str).collect();
    let shift = shift_for(pages.iter().copied().min().unwrap_or(0));
    Ok(Some(Box::new(Miniatures::new(&policies, pages, shift)?)))
}

/// What the miniatures say of each policy and size.
pub(crate) fn answers(miniatures: &Miniatures) -> Vec<WouldMiss> {
    let answer = |estimate: Estimate<'_>| WouldMiss {
        policy: estimate.policy.to_owned(),
        memory_bytes: estimate.memory_pages * PAGE,
        accesses: estimate.accesses,
        misses: estimate.misses,
    };
    miniatures.estimates().map(answer).collect()
}
