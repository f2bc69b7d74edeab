//! Which memory a scheme may touch, beyond its pattern (spec: damos §8).
//!
//! Kernel: `struct damos_filter` in `include/linux/damon.h`; `damos_filter_out` in `mm/damon/core.c`;
//! `damos_pa_filter_out` in `mm/damon/paddr.c`.

use std::ops::Range;

use super::actor::{Folio, SchemeActor};
use crate::monitor::{Profile, Region};

/// What a filter looks at. The first two are decided for a region by the kdamond, the others page by page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// Addresses; regions that straddle a border are cut there.
    Addr(Range<u64>),
    /// The index of the target.
    Target(usize),
    /// Anonymous pages.
    Anon,
    /// Pages on an active list.
    Active,
    /// Pages charged to a control group.
    Memcg(u32),
    /// Pages accessed since the last check; looking makes them old.
    Young,
    /// Folios of a size in bytes, both ends included.
    HugepageSize {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// Pages without a page-table entry.
    Unmapped,
}

impl FilterKind {
    /// Whether the kdamond decides it for whole regions.
    pub const fn is_core(&self) -> bool {
        matches!(self, FilterKind::Addr(_) | FilterKind::Target(_))
    }

    /// The name used in configurations.
    pub const fn name(&self) -> &'static str {
        match self {
            FilterKind::Addr(_) => "addr",
            FilterKind::Target(_) => "target",
            FilterKind::Anon => "anon",
            FilterKind::Active => "active",
            FilterKind::Memcg(_) => "memcg",
            FilterKind::Young => "young",
            FilterKind::HugepageSize { .. } => "hugepage_size",
            FilterKind::Unmapped => "unmapped",
        }
    }
}

/// One filter: it fires when what it looks at is (`matching`) or is not (`!matching`) of its kind, and then decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What is looked at.
    pub kind: FilterKind,
    /// Fire on a match (true) or on everything else (false).
    pub matching: bool,
    /// Let pass what it fires on (true) or keep it out (false).
    pub allow: bool,
}

impl Filter {
    /// Keeps out what is of a kind.
    pub const fn reject(kind: FilterKind) -> Filter {
        Filter { kind, matching: true, allow: false }
    }

    /// Keeps out what is not of a kind.
    pub const fn reject_others(kind: FilterKind) -> Filter {
        Filter { kind, matching: false, allow: false }
    }

    /// Lets pass what is of a kind.
    pub const fn allow(kind: FilterKind) -> Filter {
        Filter { kind, matching: true, allow: true }
    }
}

/// What the kdamond's filters say of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Out.
    Rejected,
    /// In, whatever the page filters say.
    Allowed,
    /// Up to the page filters.
    Undecided,
}

/// The filters of a scheme, by layer, in the order given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    core: Vec<Filter>,
    pages: Vec<Filter>,
}

impl Filters {
    pub fn new(filters: Vec<Filter>) -> Filters {
        let (core, pages) = filters.into_iter().partition(|filter| filter.kind.is_core());
        Filters { core, pages }
    }

    pub fn has_page_filters(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Whether asking for a verdict can cut regions.
    pub fn cuts(&self) -> bool {
        self.core.iter().any(|filter| matches!(filter.kind, FilterKind::Addr(_)))
    }

    pub fn has_core_filters(&self) -> bool {
        !self.core.is_empty()
    }

    pub fn has_young(&self) -> bool {
        self.pages.iter().any(|filter| filter.kind == FilterKind::Young)
    }

    /// What the kdamond's filters say of a region; `cut_off` takes the right part of one that straddles a border.
    pub fn verdict(
        &self,
        target: usize,
        region: &mut Region,
        unit: u64,
        profile: Profile,
        mut cut_off: impl FnMut(Region),
    ) -> Verdict {
        for filter in &self.core {
            let matches = match &filter.kind {
                FilterKind::Target(index) => *index == target,
                FilterKind::Addr(range) => {
                    let (start, end) = (range.start / unit * unit, range.end / unit * unit);
                    if start <= region.start && region.end <= end {
                        true
                    } else if region.end <= start || end <= region.start {
                        false
                    } else if region.start < start {
                        cut_off(region.split(start - region.start, profile));
                        false
                    } else {
                        cut_off(region.split(end - region.start, profile));
                        true
                    }
                }
                _ => continue,
            };
            if matches == filter.matching {
                return if filter.allow { Verdict::Allowed } else { Verdict::Rejected };
            }
        }
        // With page filters a region that no filter decided must reach them.
        if self.pages.is_empty() && self.core.last().is_some_and(|last| last.allow) {
            return Verdict::Rejected;
        }
        Verdict::Undecided
    }

    /// Whether the page filters keep a folio out. `no_young`: one more filter at the end rejects young folios.
    pub fn rejects<A: SchemeActor>(&self, actor: &mut A, folio: &Folio, no_young: bool) -> bool {
        for filter in &self.pages {
            if page_matches(&filter.kind, actor, folio) == filter.matching {
                return !filter.allow;
            }
        }
        if no_young && page_matches(&FilterKind::Young, actor, folio) {
            return true;
        }
        self.pages.last().is_some_and(|last| last.allow)
    }
}

fn page_matches<A: SchemeActor>(kind: &FilterKind, actor: &mut A, folio: &Folio) -> bool {
    match kind {
        FilterKind::Anon => folio.anon,
        FilterKind::Active => folio.active,
        FilterKind::Memcg(id) => folio.memcg == Some(*id),
        FilterKind::Young => {
            let young = actor.is_young(folio);
            if young {
                actor.make_old(folio);
            }
            young
        }
        FilterKind::HugepageSize { min, max } => (*min..=*max).contains(&folio.size),
        FilterKind::Unmapped => !folio.mapped,
        FilterKind::Addr(_) | FilterKind::Target(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict on `start..end` under an allowing address filter, and how far the region reaches afterwards.
    fn addr(range: Range<u64>, start: u64, end: u64) -> (bool, u64, Option<(u64, u64)>) {
        let filters = Filters::new(vec![Filter::reject(FilterKind::Addr(range))]);
        let mut region = Region::new(start, end);
        let mut right = None;
        let verdict = filters.verdict(0, &mut region, 1, Profile::K72, |cut| right = Some((cut.start, cut.end)));
        (verdict == Verdict::Rejected, region.end, right)
    }

    #[test]
    fn address_filters_cut_at_their_borders() {
        assert_eq!(addr(2..6, 1, 2), (false, 2, None));
        assert_eq!(addr(2..6, 2, 6), (true, 6, None));
        assert_eq!(addr(2..6, 3, 5), (true, 5, None));
        assert_eq!(addr(2..6, 6, 8), (false, 8, None));
        assert_eq!(addr(2..6, 1, 4), (false, 2, Some((2, 4))));
        assert_eq!(addr(2..6, 4, 8), (true, 6, Some((6, 8))));
        assert_eq!(addr(3..3, 1, 8), (false, 3, Some((3, 8))), "empty: no match, but a cut");
    }

    struct Nothing;
    impl SchemeActor for Nothing {}

    fn folio(anon: bool, memcg: u32) -> Folio {
        Folio { page: 0, size: 4096, at_head: true, anon, active: false, mapped: true, memcg: Some(memcg) }
    }

    #[test]
    fn the_last_filter_decides_the_default() {
        let rejected =
            |filters: &[Filter], folio: &Folio| Filters::new(filters.to_vec()).rejects(&mut Nothing, folio, false);
        let allow_anon = [Filter::allow(FilterKind::Anon)];
        assert!(!rejected(&allow_anon, &folio(true, 0)) && rejected(&allow_anon, &folio(false, 0)));
        let reject_anon = [Filter::reject(FilterKind::Anon)];
        assert!(rejected(&reject_anon, &folio(true, 0)) && !rejected(&reject_anon, &folio(false, 0)));
        let both = [Filter::reject(FilterKind::Memcg(7)), Filter::allow(FilterKind::Anon)];
        assert!(
            rejected(&both, &folio(true, 7)) && !rejected(&both, &folio(true, 1)) && rejected(&both, &folio(false, 1))
        );
    }

    #[test]
    fn core_defaults_wait_for_page_filters() {
        let verdict = |filters: &[Filter], target| {
            Filters::new(filters.to_vec()).verdict(target, &mut Region::new(0, 8), 1, Profile::K72, |_| {})
        };
        let allow = Filter::allow(FilterKind::Target(1));
        assert_eq!(verdict(std::slice::from_ref(&allow), 1), Verdict::Allowed);
        assert_eq!(verdict(std::slice::from_ref(&allow), 0), Verdict::Rejected);
        assert_eq!(verdict(&[allow, Filter::reject(FilterKind::Anon)], 0), Verdict::Undecided);
        assert_eq!(verdict(&[], 0), Verdict::Undecided);
    }
}
