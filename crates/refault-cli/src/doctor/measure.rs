//! Short measurements: what a fault costs the program that makes it, both ways.

use std::time::Instant;

use refault_core::monitor::Random;
use refault_pager::{Budget, FaultMode, Pager, PagerOptions, Region};

use super::Finding;
use refault_lab::size::PAGE_BYTES;

const PAGE: usize = PAGE_BYTES as usize;
/// Pages of the region that is measured on.
const PAGES: usize = 4096;

/// Adds what can be measured to the findings it belongs to. What fails is left out.
pub(super) fn add(findings: &mut [Finding]) {
    let mut put = |name: &str, what: &'static str, value: Option<f64>, unit: &'static str| {
        if let (Some(value), Some(finding)) = (value, findings.iter_mut().find(|finding| finding.name == name)) {
            finding.measured.push((what, value, unit));
        }
    };
    let handler = region(FaultMode::Handler { threads: 1 });
    if let Some((_pager, mut region)) = handler {
        fill(&mut region);
        put("userfaultfd", "a fault from the compressed pool", fault_us(&region), "µs");
        put("userfaultfd", "an eviction", evict_us(&mut region), "µs");
    }
    if let Some((_pager, mut region)) = region(FaultMode::InThread) {
        fill(&mut region);
        put("userfaultfd", "a fault served in the thread that takes it", fault_us(&region), "µs");
    }
}

/// Seconds that a page costs which comes back from the compressed pool, the eviction that makes room for it included;
/// `None` where there can be no pager.
pub fn seconds_per_page() -> Option<f64> {
    let (_pager, mut region) = region(FaultMode::Handler { threads: 1 })?;
    fill(&mut region);
    Some((fault_us(&region)? + evict_us(&mut region)?) / 1e6)
}

fn region(fault_mode: FaultMode) -> Option<(Pager, Region)> {
    let options =
        PagerOptions { fault_mode, bring_successors: false, address_space: 256 << 20, ..PagerOptions::default() };
    let pager = Pager::new(Budget::new(64 << 20), options).ok()?;
    let region = pager.region(PAGES * PAGE).ok()?;
    Some((pager, region))
}

/// Pages that compress to about half.
fn fill(region: &mut Region) {
    let mut random = Random::new(1);
    for word in region.chunks_exact_mut(8) {
        word.copy_from_slice(&(random.bits() >> 33).to_le_bytes());
    }
}

/// Microseconds from a touch of an evicted page to its end, in an order without sequences.
fn fault_us(region: &Region) -> Option<f64> {
    region.evict(0..region.len());
    let mut times: Vec<f64> = (0..PAGES)
        .map(|index| {
            let page = index * 1663 % PAGES;
            let start = Instant::now();
            std::hint::black_box(region[page * PAGE]);
            start.elapsed().as_nanos() as f64 / 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

fn evict_us(region: &mut Region) -> Option<f64> {
    region.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
    let start = Instant::now();
    let pages = region.evict(0..region.len()) / PAGE;
    (pages > 0).then(|| start.elapsed().as_nanos() as f64 / 1000.0 / pages as f64)
}
