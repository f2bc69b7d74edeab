//! Property tests: the monitor step by step against a slow model that follows the page's rules (spec: damon §3–§7)
//! literally, with a list that is searched and rebuilt at each change.

use proptest::prelude::*;

use super::{AccessSampler, Attributes, Monitor, Profile, Random, Target};

/// Whether an address is accessed in an interval: any fixed function does.
fn touched(address: u64, interval: u64, heat: u64) -> bool {
    let page = address / 4096;
    let mut random = Random::new(page.wrapping_mul(0x1234_5677).wrapping_add(interval / 3));
    page % 37 < heat && random.bits() % 100 < (page % 5) * 25
}

struct Pattern {
    interval: u64,
    heat: u64,
}

impl AccessSampler for Pattern {
    fn prepare(&mut self, _target: usize, _address: u64) {}

    fn accessed(&mut self, _target: usize, address: u64) -> bool {
        touched(address, self.interval, self.heat)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slow {
    start: u64,
    end: u64,
    nr: u64,
    bp: u64,
    last: u64,
    age: u64,
}

struct Model {
    profile: Profile,
    attributes: Attributes,
    targets: Vec<Vec<Slow>>,
    random: Random,
    limit: u64,
    last_n: usize,
}

impl Model {
    fn total(&self) -> u64 {
        self.targets.iter().flatten().map(|r| r.end - r.start).sum()
    }

    fn renew_limit(&mut self) {
        let unit = self.attributes.min_region_size;
        self.limit = (self.total() / self.attributes.min_nr_regions as u64).max(unit);
        if self.profile != Profile::K72 {
            return;
        }
        self.limit = self.limit.div_ceil(unit) * unit;
        for target in &mut self.targets {
            let mut at = 0;
            while at < target.len() {
                if target[at].end - target[at].start > self.limit {
                    let mut right = target[at].clone();
                    right.start += self.limit;
                    target[at].end = right.start;
                    target.insert(at + 1, right);
                }
                at += 1;
            }
        }
    }

    fn sample(&mut self, pattern: &Pattern) -> u32 {
        let window = u64::from(self.attributes.max_nr_accesses());
        let mut addresses = Vec::new();
        for region in self.targets.iter().flatten() {
            let span = region.end - region.start;
            let span = if self.profile == Profile::K72 { span } else { span % (1 << 32) };
            addresses.push(self.random.within(region.start, region.start + span));
        }
        let mut highest = 0;
        for (region, address) in self.targets.iter_mut().flatten().zip(addresses) {
            let hit = u64::from(touched(address, pattern.interval, pattern.heat));
            region.bp = region.bp - (region.last * 10_000 / window).min(region.bp) + hit * 10_000;
            region.nr += hit;
            highest = highest.max(region.nr);
        }
        highest as u32
    }

    fn merge_once(&mut self, threshold: u64, age: bool) {
        for target in &mut self.targets {
            let mut at = 0;
            let mut prev: Option<usize> = None;
            while at < target.len() {
                if age {
                    let r = &mut target[at];
                    let woke = self.profile == Profile::K72 && (r.nr == 0) != (r.last == 0);
                    r.age = if r.nr.abs_diff(r.last) > threshold || woke { 0 } else { r.age + 1 };
                }
                if let Some(p) = prev
                    && target[p].end == target[at].start
                    && target[p].nr.abs_diff(target[at].nr) <= threshold
                    && target[at].end - target[p].start <= self.limit
                {
                    let right = target.remove(at);
                    let left = &mut target[p];
                    let (sl, sr) = (left.end - left.start, right.end - right.start);
                    left.nr = (left.nr * sl + right.nr * sr) / (sl + sr);
                    left.age = (left.age * sl + right.age * sr) / (sl + sr);
                    left.bp = left.nr * 10_000;
                    left.end = right.end;
                    continue;
                }
                prev = Some(at);
                at += 1;
            }
        }
    }

    fn count(&self) -> usize {
        self.targets.iter().map(Vec::len).sum()
    }

    fn merge(&mut self, highest: u32) {
        let most = self.attributes.aggr_interval / self.attributes.sample_interval.max(1);
        let mut threshold = u64::from(highest / 10);
        match self.profile {
            Profile::K518 => self.merge_once(threshold, true),
            Profile::K612 => loop {
                self.merge_once(threshold, true);
                threshold = (2 * threshold).max(1);
                if !(self.count() > self.attributes.max_nr_regions && threshold / 2 < most) {
                    break;
                }
            },
            Profile::K60 | Profile::K72 => {
                let mut age = true;
                loop {
                    self.merge_once(threshold, age);
                    age = false;
                    if self.count() <= self.attributes.max_nr_regions || threshold >= most {
                        break;
                    }
                    threshold = if threshold < most / 2 { (2 * threshold).max(1) } else { most };
                }
            }
        }
    }

    fn reset(&mut self) {
        for region in self.targets.iter_mut().flatten() {
            region.last = region.nr;
            if self.profile == Profile::K72 {
                region.bp = region.nr * 10_000;
            }
            region.nr = 0;
        }
    }

    fn split(&mut self) {
        let n = self.count();
        if n > self.attributes.max_nr_regions / 2 {
            return;
        }
        let subs = if self.last_n == n && n < self.attributes.max_nr_regions / 3 { 3 } else { 2 };
        let unit = self.attributes.min_region_size;
        for target in &mut self.targets {
            let starts: Vec<u64> = target.iter().map(|r| r.start).collect();
            for start in starts {
                for _ in 0..subs - 1 {
                    let at = target.iter().position(|r| r.start == start).unwrap();
                    let size = target[at].end - target[at].start;
                    if size <= 2 * unit {
                        break;
                    }
                    let cut = self.random.within(1, 10) * size / 10 / unit * unit;
                    if cut == 0 || cut >= size {
                        continue;
                    }
                    let mut right = target[at].clone();
                    right.start += cut;
                    target[at].end = right.start;
                    if matches!(self.profile, Profile::K518 | Profile::K60) {
                        right.nr = 0;
                        right.bp = 0;
                    }
                    target.insert(at + 1, right);
                }
            }
        }
        self.last_n = n;
    }
}

fn regions(monitor: &Monitor) -> Vec<Vec<Slow>> {
    let slow = |r: &super::Region| Slow {
        start: r.start,
        end: r.end,
        nr: u64::from(r.nr_accesses),
        bp: r.nr_accesses_bp,
        last: u64::from(r.last_nr_accesses),
        age: u64::from(r.age),
    };
    monitor.targets().iter().map(|target| target.regions().iter().map(slow).collect()).collect()
}

fn covers(monitor: &Monitor, ranges: &[std::ops::Range<u64>]) -> bool {
    let regions = monitor.targets()[0].regions();
    regions.windows(2).all(|pair| pair[0].end <= pair[1].start)
        && regions.iter().all(|r| r.start < r.end && ranges.iter().any(|g| g.start <= r.start && r.end <= g.end))
        && monitor.size() == ranges.iter().map(|g| g.end - g.start).sum::<u64>()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn steps_equal_the_slow_model(
        seed: u64,
        profile in prop::sample::select(&Profile::ALL[..]),
        pages in prop::collection::vec((1u64..2000, 1u64..50), 1..4),
        min_nr_regions in 3usize..12,
        more in 0usize..60,
        window in 1u64..40,
        heat in 0u64..40,
    ) {
        let attributes = Attributes {
            sample_interval: 10,
            aggr_interval: 10 * window,
            min_nr_regions,
            max_nr_regions: min_nr_regions + more,
            ..Attributes::default()
        };
        let mut at = 1 << 20;
        let ranges: Vec<_> = pages
            .iter()
            .map(|(length, gap)| {
                let range = at..at + length * 4096;
                at = range.end + gap * 4096;
                range
            })
            .collect();
        let target = Target::new(&ranges, 4096).unwrap();
        let slow = |r: &super::Region| Slow { start: r.start, end: r.end, nr: 0, bp: 0, last: 0, age: 0 };
        let mut model = Model {
            profile,
            attributes,
            targets: vec![target.regions().iter().map(slow).collect()],
            random: Random::new(seed),
            limit: 0,
            last_n: 0,
        };
        let mut monitor = Monitor::new(profile, attributes, vec![target], seed).unwrap();
        model.renew_limit();
        let mut pattern = Pattern { interval: 0, heat };
        for _ in 0..8 {
            let mut highest = (0, 0);
            for _ in 0..window {
                pattern.interval += 1;
                monitor.prepare(&mut pattern);
                highest = (monitor.check(&mut pattern), model.sample(&pattern));
                prop_assert_eq!(regions(&monitor), model.targets.clone());
            }
            prop_assert_eq!(highest.0, highest.1);
            monitor.merge_regions(highest.0, &pattern);
            model.merge(highest.1);
            prop_assert_eq!(regions(&monitor), model.targets.clone());
            prop_assert!(covers(&monitor, &ranges));
            if profile == Profile::K72 {
                monitor.limit_sizes();
                model.renew_limit();
            }
            monitor.reset_aggregated();
            model.reset();
            monitor.split_regions(&pattern);
            model.split();
            prop_assert_eq!(regions(&monitor), model.targets.clone());
            prop_assert!(covers(&monitor, &ranges));
            // A region of one range is never beyond the limit; a page is never cut.
            for region in monitor.targets()[0].regions() {
                prop_assert!(region.size() % 4096 == 0);
                prop_assert!(profile != Profile::K72 || region.size() <= model.limit);
            }
        }
        prop_assert_eq!(monitor.counters().intervals, 8 * window);
    }

    #[test]
    fn merging_meets_the_bound_and_conserves_bytes(
        seed: u64,
        counts in prop::collection::vec(0u32..=20, 1..400),
        most in 10usize..50,
    ) {
        let attributes = Attributes { max_nr_regions: most, ..Attributes::default() };
        let pages: u64 = counts.len() as u64;
        let target = Target::from_regions(
            counts
                .iter()
                .enumerate()
                .map(|(i, &nr_accesses)| super::Region {
                    nr_accesses,
                    ..super::Region::new(i as u64 * 4096, (i as u64 + 1) * 4096)
                })
                .collect(),
        );
        let mut monitor = Monitor::new(Profile::K72, attributes, vec![target], seed).unwrap();
        let highest = *counts.iter().max().unwrap();
        monitor.merge_regions(highest, &Pattern { interval: 0, heat: 0 });
        // With the size limit of total/10, two neighbours above half of it may both stand: up to twice the ten.
        prop_assert!(monitor.nr_regions() <= most.max(20));
        prop_assert_eq!(monitor.size(), pages * 4096);
        let events: u64 = monitor.targets()[0].regions().iter().map(|r| r.size() / 4096 * u64::from(r.nr_accesses)).sum();
        let truth: u64 = counts.iter().map(|&n| u64::from(n)).sum();
        prop_assert!(events <= truth, "truncated means never add accesses");
    }

    #[test]
    fn layouts_are_covered_and_never_overlap(
        first in prop::collection::vec((1u64..50, 1u64..50), 1..6),
        second in prop::collection::vec((1u64..50, 1u64..50), 1..6),
        cuts in prop::collection::vec(1u64..2000, 0..20),
    ) {
        let lay = |pieces: &[(u64, u64)]| {
            let mut at = 0;
            pieces.iter().map(|(gap, length)| {
                let range = at + gap..at + gap + length;
                at = range.end;
                range
            }).collect::<Vec<_>>()
        };
        let (first, second) = (lay(&first), lay(&second));
        let mut target = Target::new(&first, 1).unwrap();
        for cut in cuts {
            let regions = target.regions_mut();
            if let Some(i) = regions.iter().position(|r| r.start < cut && cut < r.end) {
                let size = cut - regions[i].start;
                let right = regions[i].split(size, Profile::K72);
                regions.insert(i + 1, right);
            }
        }
        target.set_ranges(&second, 1).unwrap();
        let monitor = Monitor::new(Profile::K612, Attributes::default(), vec![target], 0).unwrap();
        prop_assert!(covers(&monitor, &second));
    }
}

#[test]
fn the_same_seed_gives_the_same_regions() {
    let run = |seed| {
        let target = Target::over(0..4096 * 5000, 4096).unwrap();
        let mut monitor = Monitor::new(Profile::K72, Attributes::default(), vec![target], seed).unwrap();
        let mut pattern = Pattern { interval: 0, heat: 12 };
        for interval in 1..=200 {
            pattern.interval = interval;
            monitor.prepare(&mut pattern);
            let highest = monitor.check(&mut pattern);
            if interval % 20 == 0 {
                monitor.merge_regions(highest, &pattern);
                monitor.limit_sizes();
                monitor.reset_aggregated();
                monitor.split_regions(&pattern);
            }
        }
        (regions(&monitor), *monitor.counters())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}
