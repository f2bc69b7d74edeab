//! A pass of the schemes over the regions (spec: damos §4–§6).
//!
//! Kernel: `kdamond_apply_schemes`, `damon_do_apply_schemes`, `damos_apply_scheme`, `damos_skip_charged_region`,
//! `damos_update_stat` in `mm/damon/core.c`; `damon_pa_pageout` in `mm/damon/paddr.c`.

use std::ops::Range;

use super::action::Action;
use super::actor::SchemeActor;
use super::filter::Verdict;
use super::kdamond::Observer;
use super::quota::Histogram;
use super::scheme::Scheme;
use crate::monitor::{AccessSampler, Attributes, Monitor, Profile, Region, View};

/// A region that a scheme was about to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriedRegion {
    /// Index of the scheme.
    pub scheme: usize,
    /// Index of the target.
    pub target: usize,
    /// The region before the action, its age not yet reset.
    pub region: Region,
    /// Bytes that passed the page filters.
    pub sz_filter_passed: u64,
}

/// What does not change during a pass.
pub(crate) struct Pass {
    pub profile: Profile,
    pub view: View,
    pub attributes: Attributes,
    pub now_ms: u64,
    /// Schemes whose interval is over, by index.
    pub due: Vec<bool>,
}

impl Pass {
    fn unit(&self) -> u64 {
        self.attributes.min_region_size
    }
}

/// The regions of a target during a pass: those behind, those ahead, and the right parts that wait for the next pass.
/// Splitting is O(1), so that a pass is linear in regions.
struct Walk {
    done: Vec<Region>,
    /// The next one is the last.
    ahead: Vec<Region>,
    later: Vec<Region>,
    defers: bool,
}

impl Walk {
    fn over(regions: &mut Vec<Region>, profile: Profile) -> Walk {
        let mut ahead = std::mem::take(regions);
        ahead.reverse();
        Walk {
            done: Vec::with_capacity(ahead.len() + 8),
            ahead,
            later: Vec::new(),
            defers: profile.defers_remainders(),
        }
    }

    fn cut_off(&mut self, right: Region) {
        if self.defers { self.later.push(right) } else { self.ahead.push(right) }
    }

    fn at_last(&self) -> bool {
        self.ahead.is_empty() && self.later.is_empty()
    }

    fn settle(&mut self, region: Region) {
        self.done.push(region);
        self.done.extend(self.later.drain(..).rev());
    }
}

/// Runs the due schemes over all targets. Returns whether any was.
pub(crate) fn apply_schemes<E, O>(
    monitor: &mut Monitor,
    schemes: &mut [Scheme],
    pass: &Pass,
    env: &mut E,
    observer: &mut O,
    tried: &mut Option<Vec<TriedRegion>>,
) -> bool
where
    E: AccessSampler + SchemeActor,
    O: Observer,
{
    let active = |index: usize, scheme: &Scheme| pass.due[index] && scheme.activated;
    let mut any = false;
    for (index, scheme) in schemes.iter_mut().enumerate() {
        if active(index, scheme) {
            any = true;
            adjust_quota(monitor, scheme, pass, env);
            observer.effective_size(index, scheme.quota.effective_size);
        }
    }
    if !any {
        return false;
    }
    let size_limit = monitor.region_size_limit();
    for (target_index, target) in monitor.targets.iter_mut().enumerate() {
        if pass.profile.is_current() && !env.is_valid(target_index) {
            for scheme in schemes.iter_mut() {
                scheme.quota.resume.take_if(|(marked, _)| *marked == target_index);
            }
            continue;
        }
        let mut walk = Walk::over(target.regions_mut(), pass.profile);
        while let Some(mut region) = walk.ahead.pop() {
            for (index, scheme) in schemes.iter_mut().enumerate() {
                if active(index, scheme) {
                    let mut visit = Visit { pass, scheme, index, target: target_index, walk: &mut walk };
                    visit.consider(&mut region, env, observer, tried);
                }
            }
            if pass.profile.is_current()
                && let Some(left) = walk.done.last_mut()
                && rejoins(left, &region, size_limit)
            {
                left.end = region.end;
            } else {
                walk.settle(region);
            }
        }
        *target.regions_mut() = walk.done;
    }
    for (scheme, _) in schemes.iter_mut().zip(&pass.due).filter(|(_, due)| **due) {
        scheme.last_applied = None;
    }
    true
}

/// Whether a cut is undone because both sides have become the same again.
fn rejoins(left: &Region, right: &Region, size_limit: u64) -> bool {
    left.end == right.start
        && left.age == right.age
        && left.last_nr_accesses == right.last_nr_accesses
        && left.nr_accesses == right.nr_accesses
        && left.size() + right.size() <= size_limit
}

/// Opens windows and finds the lowest score that the quota reaches.
fn adjust_quota<E: AccessSampler + SchemeActor>(monitor: &mut Monitor, scheme: &mut Scheme, pass: &Pass, env: &mut E) {
    let (profile, unit) = (pass.profile, pass.unit());
    if !scheme.settings.quota.is_set() {
        return;
    }
    let pattern = scheme.settings.pattern;
    let full = scheme.quota.turn_window(&mut scheme.settings.quota, profile, unit, pass.now_ms, |goals| {
        goals
            .iter_mut()
            .map(|goal| goal.score(env, |node| eligible_share(monitor, &pattern, profile, env, node)))
            .max()
            .unwrap_or(0)
    });
    scheme.statistics.qt_exceeds += u64::from(full);
    let mut histogram = Histogram::new();
    let asks_filters = profile.is_current() && scheme.filters.has_core_filters();
    for (index, target) in monitor.targets.iter_mut().enumerate() {
        let mut add = |region: &mut Region, cut_off: &mut dyn FnMut(Region)| {
            if !pattern.matches(region, profile)
                || asks_filters && scheme.filters.verdict(index, region, unit, profile, cut_off) == Verdict::Rejected
            {
                return;
            }
            let score = scheme.priority.score(region, &scheme.settings.quota.weights, &pass.attributes, profile);
            histogram.add(score, region.size());
        };
        if asks_filters && scheme.filters.cuts() {
            let mut walk = Walk::over(target.regions_mut(), profile);
            while let Some(mut region) = walk.ahead.pop() {
                add(&mut region, &mut |right| walk.ahead.push(right));
                walk.done.push(region);
            }
            *target.regions_mut() = walk.done;
        } else {
            target.regions_mut().iter_mut().for_each(|region| add(region, &mut |_| {}));
        }
    }
    scheme.quota.min_score = histogram.min_score(scheme.quota.effective_size);
}

/// Share of the fitting bytes that lie on a node, in 1/10 000.
fn eligible_share<A: SchemeActor>(
    monitor: &Monitor,
    pattern: &super::Pattern,
    profile: Profile,
    actor: &A,
    node: u32,
) -> u64 {
    let (mut there, mut all) = (0u128, 0u128);
    for region in monitor.targets().iter().flat_map(|target| target.regions()) {
        if pattern.matches(region, profile) {
            let size = u128::from(region.size());
            all += size;
            there += if actor.node_of(region.start) == Some(node) { size } else { 0 };
        }
    }
    (there * 10_000).checked_div(all).unwrap_or(0) as u64
}

/// One scheme at one region.
struct Visit<'a> {
    pass: &'a Pass,
    scheme: &'a mut Scheme,
    index: usize,
    target: usize,
    walk: &'a mut Walk,
}

impl Visit<'_> {
    fn consider<E, O>(
        &mut self,
        region: &mut Region,
        env: &mut E,
        observer: &mut O,
        tried: &mut Option<Vec<TriedRegion>>,
    ) where
        E: AccessSampler + SchemeActor,
        O: Observer,
    {
        let (profile, unit) = (self.pass.profile, self.pass.unit());
        if self.scheme.quota.is_full(&self.scheme.settings.quota, profile, unit) {
            return;
        }
        let skips = if profile.defers_remainders() { self.skips_once(region) } else { self.skips(region) };
        if skips {
            return;
        }
        let most = self.scheme.settings.max_nr_snapshots;
        if most != 0 && self.scheme.statistics.nr_snapshots >= most {
            return;
        }
        if self.scheme.settings.pattern.matches(region, profile) && self.admits(region) {
            self.apply(region, env, observer, tried);
        }
        if self.walk.at_last() {
            self.scheme.statistics.nr_snapshots += 1;
        }
    }

    fn admits(&self, region: &Region) -> bool {
        let (scheme, pass) = (&self.scheme, self.pass);
        if !scheme.quota.limits(&scheme.settings.quota, pass.profile) {
            return true;
        }
        let weights = &scheme.settings.quota.weights;
        scheme.priority.score(region, weights, &pass.attributes, pass.profile) >= scheme.quota.min_score
    }

    /// Whether the region lies before the place where the last full window stopped (spec: damos §6.3).
    fn skips(&mut self, region: &mut Region) -> bool {
        let mut skips = false;
        if let Some((target, address)) = self.scheme.quota.resume {
            if target != self.target {
                return true;
            }
            if region.end <= address {
                skips = true;
            } else if region.start < address {
                if let Some(right) = self.cut_at(region, address) {
                    self.walk.cut_off(right);
                }
                skips = true;
            }
        }
        if self.walk.at_last() {
            self.scheme.quota.resume = None;
        }
        skips
    }

    /// The form that forgets the mark at the first region behind it, and skips a last region whole.
    fn skips_once(&mut self, region: &mut Region) -> bool {
        let Some((target, address)) = self.scheme.quota.resume else { return false };
        if target != self.target {
            return true;
        }
        if self.walk.at_last() {
            self.scheme.quota.resume = None;
            return true;
        }
        if region.end <= address {
            return true;
        }
        if region.start < address {
            let Some(right) = self.cut_at(region, address) else { return true };
            let left = std::mem::replace(region, right);
            self.walk.done.push(left);
        }
        self.scheme.quota.resume = None;
        false
    }

    /// Cuts at the address, at least one unit in; `None` if the region is a single unit.
    fn cut_at(&self, region: &mut Region, address: u64) -> Option<Region> {
        let unit = self.pass.unit();
        let size = (address - region.start) / unit * unit;
        if size == 0 && region.size() <= unit {
            return None;
        }
        Some(region.split(size.max(unit), self.pass.profile))
    }

    fn apply<E, O>(&mut self, region: &mut Region, env: &mut E, observer: &mut O, tried: &mut Option<Vec<TriedRegion>>)
    where
        E: AccessSampler + SchemeActor,
        O: Observer,
    {
        let (profile, unit) = (self.pass.profile, self.pass.unit());
        let mut size = region.size();
        let quota = &self.scheme.quota;
        if quota.limits(&self.scheme.settings.quota, profile)
            && quota.charged.saturating_add(size) > quota.effective_size
        {
            size = (quota.effective_size - quota.charged) / unit * unit;
            if size == 0 {
                self.scheme.statistics.nr_tried += 1;
                return;
            }
            let right = region.split(size, profile);
            self.walk.cut_off(right);
        }
        let walk = &mut *self.walk;
        let verdict = self.scheme.filters.verdict(self.target, region, unit, profile, |right| walk.cut_off(right));
        if verdict == Verdict::Rejected {
            return;
        }
        observer.before_apply(self.index, self.target, region);
        let before = env.work_ns();
        let (applied, passed) = act(self.scheme, self.pass, self.target, region, verdict, env);
        self.scheme.quota.total_charged_ns += env.work_ns() - before;
        if let Some(tried) = tried {
            tried.push(TriedRegion {
                scheme: self.index,
                target: self.target,
                region: *region,
                sz_filter_passed: passed,
            });
        }
        self.scheme.quota.charge(&self.scheme.settings.quota, profile, size, applied);
        if self.scheme.quota.is_full(&self.scheme.settings.quota, profile, unit) {
            let one_more = u64::from(profile == Profile::K518);
            self.scheme.quota.resume = Some((self.target, region.end + one_more));
        }
        if self.scheme.settings.action != Action::Stat {
            region.age = 0;
        }
        let statistics = &mut self.scheme.statistics;
        statistics.nr_tried += 1;
        statistics.sz_tried = statistics.sz_tried.saturating_add(size);
        statistics.nr_applied += u64::from(applied > 0);
        statistics.sz_applied = statistics.sz_applied.saturating_add(applied);
        statistics.sz_ops_filter_passed = statistics.sz_ops_filter_passed.saturating_add(passed);
    }
}

/// Acts on a region; returns the bytes acted upon and those that passed the page filters.
fn act<E: SchemeActor>(
    scheme: &mut Scheme,
    pass: &Pass,
    target: usize,
    region: &Region,
    verdict: Verdict,
    env: &mut E,
) -> (u64, u64) {
    let action = &scheme.settings.action;
    let unit = pass.unit();
    if action.is_advice(pass.view) {
        let start = region.start.next_multiple_of(unit);
        let length = region.size().next_multiple_of(unit);
        let taken = env.advise(action, target, start..start + length);
        return (if taken { length } else { 0 }, 0);
    }
    if *action == Action::Stat && !(pass.profile.is_current() && scheme.filters.has_page_filters()) {
        return (0, 0);
    }
    let (applied, passed) = walk_pages(scheme, pass, target, region.start..region.end, verdict, env);
    // Migration of virtual ranges does not report what passed.
    if pass.view == View::Physical || scheme.settings.action == Action::Stat { (applied, passed) } else { (applied, 0) }
}

/// The folios of a region, one after the other (spec: damos §3.1).
fn walk_pages<E: SchemeActor>(
    scheme: &mut Scheme,
    pass: &Pass,
    target: usize,
    range: Range<u64>,
    verdict: Verdict,
    env: &mut E,
) -> (u64, u64) {
    let action = &scheme.settings.action;
    let old = pass.profile.keeps_elapsed_time();
    let no_young = *action == Action::Pageout && !old && !scheme.filters.has_young();
    let skipped = if pass.profile.is_current() { scheme.last_applied } else { None };
    let (mut applied, mut passed) = (0, 0);
    let mut last = None;
    let mut address = range.start;
    while address < range.end {
        // The oldest profiles know only the first page of a larger folio, and count it as one page.
        let folio = env.folio(target, address).filter(|folio| !old || folio.at_head);
        last = folio.map(|folio| folio.page);
        let Some(folio) = folio.filter(|folio| Some(folio.page) != skipped) else {
            address += pass.unit();
            continue;
        };
        let size = if old { pass.unit() } else { folio.size };
        if verdict == Verdict::Allowed || !scheme.filters.rejects(env, &folio, no_young) {
            passed += size;
            if *action != Action::Stat {
                applied += env.act(action, &folio).min(if old { size } else { u64::MAX });
            }
        }
        address += size;
    }
    if *action != Action::Stat {
        applied += env.finish(action);
    }
    scheme.last_applied = last;
    (applied, passed)
}
