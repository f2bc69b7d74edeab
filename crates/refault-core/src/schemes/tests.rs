//! Tests of whole passes: the published vectors, and a slow model that walks a list with an index and inserts into it.

use proptest::prelude::*;

use super::apply::{Pass, apply_schemes};
use super::*;
use crate::monitor::{AccessSampler, Attributes, Monitor, Profile, Region, Target, View};

const MIB: u64 = 1 << 20;

/// Memory in which each page is a folio of its own; acting takes 1 µs per page.
#[derive(Default)]
struct Pages {
    work_ns: u64,
    acted: Vec<(&'static str, u32)>,
}

impl AccessSampler for Pages {
    fn prepare(&mut self, _: usize, _: u64) {}
    fn accessed(&mut self, _: usize, address: u64) -> bool {
        address / 4096 % 16 < 5
    }
    fn work_ns(&self) -> u64 {
        self.work_ns
    }
}

impl SchemeActor for Pages {
    fn folio(&mut self, _: usize, address: u64) -> Option<Folio> {
        let page = (address / 4096) as u32;
        Some(Folio {
            page,
            size: 4096,
            at_head: true,
            anon: page.is_multiple_of(3),
            active: false,
            mapped: true,
            memcg: None,
        })
    }
    fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
        self.work_ns += 1000;
        self.acted.push((action.name(), folio.page));
        folio.size
    }
}

struct Bench {
    monitor: Monitor,
    schemes: Vec<Scheme>,
    env: Pages,
    profile: Profile,
}

impl Bench {
    fn new(profile: Profile, regions: Vec<Region>, settings: Vec<SchemeSettings>) -> Bench {
        let attributes = Attributes { min_nr_regions: 3, ..Attributes::default() };
        let mut monitor = Monitor::new(profile, attributes, Vec::new(), 1).unwrap();
        monitor.targets = vec![Target::from_regions(regions)];
        let scheme = |settings| Scheme::new(settings, View::Physical, profile).unwrap();
        Bench { monitor, schemes: settings.into_iter().map(scheme).collect(), env: Pages::default(), profile }
    }

    fn pass(&mut self, now_ms: u64) {
        let pass = Pass {
            profile: self.profile,
            view: View::Physical,
            attributes: *self.monitor.attributes(),
            now_ms,
            due: vec![true; self.schemes.len()],
        };
        apply_schemes(&mut self.monitor, &mut self.schemes, &pass, &mut self.env, &mut (), &mut None);
    }

    fn bounds_mib(&self) -> Vec<(u64, u64)> {
        self.monitor.targets()[0].regions().iter().map(|r| (r.start / MIB, r.end / MIB)).collect()
    }

    fn totals(&self) -> (u64, u64, u64) {
        let statistics = self.schemes[0].statistics();
        (statistics.nr_tried, statistics.sz_tried / MIB, statistics.qt_exceeds)
    }
}

/// Everything matches, all scores are equal, `size` bytes per second.
fn everything(size: u64) -> SchemeSettings {
    let quota = Quota { size, reset_interval_ms: 1000, ..Quota::default() };
    SchemeSettings { quota, ..SchemeSettings::new(Action::LruPrio) }
}

#[test]
fn a_quota_is_spent_in_address_order_and_resumed() {
    // Different last counts keep the regions from being joined again.
    let region = |i: u64| Region { last_nr_accesses: i as u32, ..Region::new(8 * i * MIB, 8 * (i + 1) * MIB) };
    let mut bench = Bench::new(Profile::K72, (0..3).map(region).collect(), vec![everything(10 * MIB)]);
    bench.pass(100);
    assert_eq!(bench.totals(), (2, 10, 0));
    assert_eq!(bench.schemes[0].quota().resume, Some((0, 10 * MIB)));
    (2..=10).for_each(|tenth| bench.pass(100 * tenth));
    assert_eq!(bench.totals(), (2, 10, 0));
    bench.pass(1100);
    assert_eq!(bench.totals(), (4, 20, 1));
    bench.pass(2100);
    assert_eq!(bench.totals(), (5, 24, 2));
    assert_eq!(bench.schemes[0].quota().resume, None, "the end of the target was reached");
    bench.pass(2200);
    assert_eq!(bench.totals(), (6, 30, 2));
}

#[test]
fn six_twelve_never_reaches_the_last_region_while_a_mark_stands() {
    let region = |i: u64| Region { last_nr_accesses: i as u32, ..Region::new(8 * i * MIB, 8 * (i + 1) * MIB) };
    let mut bench = Bench::new(Profile::K612, (0..2).map(region).collect(), vec![everything(10 * MIB)]);
    bench.schemes[0].quota.charged_from = Some(0);
    bench.pass(1000);
    assert_eq!((bench.totals().1, bench.bounds_mib()), (10, vec![(0, 8), (8, 10), (10, 16)]));
    bench.pass(2000);
    assert_eq!(bench.totals().1, 10, "the rest is the last region: skipped, and the mark is gone");
    bench.pass(2100);
    assert_eq!(bench.totals().1, 20, "the first 10 MiB again");
    let mut bench = Bench::new(Profile::K72, (0..2).map(region).collect(), vec![everything(10 * MIB)]);
    bench.pass(1000);
    bench.pass(2000);
    assert_eq!(bench.totals().1, 16);
    bench.pass(2100);
    assert_eq!(bench.totals().1, 20);
}

#[test]
fn acting_resets_age_for_the_next_scheme_and_stat_does_not() {
    let old = Pattern { age: Bounds::at_least(5), ..Pattern::ANY };
    let on_old = |action| SchemeSettings { pattern: old, ..SchemeSettings::new(action) };
    let regions = vec![Region { age: 9, ..Region::new(0, MIB) }];
    let settings = vec![on_old(Action::Stat), on_old(Action::LruPrio), on_old(Action::LruDeprio)];
    let mut bench = Bench::new(Profile::K72, regions, settings);
    bench.pass(0);
    let tried: Vec<u64> = bench.schemes.iter().map(|scheme| scheme.statistics().nr_tried).collect();
    assert_eq!(tried, [1, 1, 0]);
    assert_eq!(bench.env.acted.len(), 256);
    assert!(bench.env.acted.iter().all(|(name, _)| *name == "lru_prio"));
    assert_eq!(bench.schemes[0].statistics().nr_snapshots, 1);
}

#[test]
fn page_filters_decide_page_by_page() {
    let settings =
        SchemeSettings { filters: vec![Filter::allow(FilterKind::Anon)], ..SchemeSettings::new(Action::LruPrio) };
    let mut bench = Bench::new(Profile::K72, vec![Region::new(0, 30 * 4096)], vec![settings]);
    bench.pass(0);
    let statistics = bench.schemes[0].statistics();
    assert_eq!(
        (statistics.sz_tried, statistics.sz_applied, statistics.sz_ops_filter_passed),
        (30 * 4096, 10 * 4096, 10 * 4096)
    );
}

#[test]
fn schemes_stop_after_their_snapshots() {
    let settings = SchemeSettings { max_nr_snapshots: 2, ..SchemeSettings::new(Action::LruPrio) };
    let mut bench = Bench::new(Profile::K72, vec![Region::new(0, 4096)], vec![settings]);
    (0..5).for_each(|pass| bench.pass(pass));
    assert_eq!((bench.schemes[0].statistics().nr_snapshots, bench.schemes[0].statistics().nr_tried), (2, 2));
}

/// A folio of 2 MiB at 0 and at 2 MiB, small pages from 4 MiB.
struct Huge(Vec<u64>);
impl AccessSampler for Huge {
    fn prepare(&mut self, _: usize, _: u64) {}
    fn accessed(&mut self, _: usize, _: u64) -> bool {
        false
    }
}
impl SchemeActor for Huge {
    fn folio(&mut self, _: usize, address: u64) -> Option<Folio> {
        let size = if address < 4 * MIB { 2 * MIB } else { 4096 };
        let head = address / size * size;
        let page = (head / 4096) as u32;
        Some(Folio { page, size, at_head: head == address, anon: true, active: false, mapped: true, memcg: None })
    }
    fn act(&mut self, _: &Action, folio: &Folio) -> u64 {
        self.0.push(u64::from(folio.page) * 4096);
        folio.size
    }
}

#[test]
fn a_large_folio_entered_in_the_middle_hides_what_follows() {
    let mut bench =
        Bench::new(Profile::K72, vec![Region::new(MIB, 5 * MIB)], vec![SchemeSettings::new(Action::LruPrio)]);
    let pass = Pass {
        profile: Profile::K72,
        view: View::Physical,
        attributes: *bench.monitor.attributes(),
        now_ms: 0,
        due: vec![true],
    };
    let mut env = Huge(Vec::new());
    apply_schemes(&mut bench.monitor, &mut bench.schemes, &pass, &mut env, &mut (), &mut None);
    assert_eq!(env.0, [0, 2 * MIB]);
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SlowRegion {
    start: u64,
    end: u64,
    nr: u32,
    age: u32,
}

/// The slow model of passes of one scheme with a byte quota under K72, by the page's pseudo-code.
struct Slow {
    list: Vec<SlowRegion>,
    size: u64,
    window: Option<u64>,
    charged: u64,
    resume: Option<u64>,
    min_nr: u32,
    tried: (u64, u64),
    exceeds: u64,
    snapshots: u64,
    keep_out: Option<(u64, u64)>,
    acted: Vec<u32>,
}

impl Slow {
    fn full(&self) -> bool {
        self.charged >= self.size || self.size - self.charged < 4096
    }

    fn matches(&self, r: &SlowRegion) -> bool {
        r.nr >= self.min_nr
    }

    /// Whether the region at `i` is kept out; may cut it.
    fn kept_out(&mut self, i: usize) -> bool {
        let Some((start, end)) = self.keep_out else { return false };
        let r = self.list[i].clone();
        if start <= r.start && r.end <= end {
            return true;
        }
        if r.end <= start || end <= r.start {
            return false;
        }
        let (at, verdict) = if r.start < start { (start, false) } else { (end, true) };
        self.cut(i, at);
        verdict
    }

    fn cut(&mut self, i: usize, at: u64) {
        let mut right = self.list[i].clone();
        right.start = at;
        self.list[i].end = at;
        self.list.insert(i + 1, right);
    }

    fn score(r: &SlowRegion) -> u32 {
        // Hot score with weights 0, 1, 0 and the default window of 20.
        (r.nr * 100 / 20) * 99 / 100
    }

    fn pass(&mut self, now: u64) {
        match self.window {
            None => self.window = Some(now),
            Some(from) if now - from >= 1000 => {
                self.exceeds += u64::from(self.full());
                self.window = Some(now);
                self.charged = 0;
            }
            _ => {}
        }
        let mut classes = [0u64; 100];
        let mut i = 0;
        while i < self.list.len() {
            if self.matches(&self.list[i].clone()) && !self.kept_out(i) {
                classes[Self::score(&self.list[i]) as usize] += self.list[i].end - self.list[i].start;
            }
            i += 1;
        }
        let mut min_score = classes.iter().rposition(|&size| size > 0).unwrap_or(0);
        let mut sum = classes[min_score];
        while sum < self.size && min_score > 0 {
            min_score -= 1;
            sum += classes[min_score];
        }
        let limit = self.list.iter().map(|r| r.end - r.start).sum::<u64>() / 3;
        let mut i = 0;
        while i < self.list.len() {
            self.visit(i, min_score as u32);
            if i > 0 {
                let (left, right) = (self.list[i - 1].clone(), self.list[i].clone());
                if left.end == right.start
                    && left.age == right.age
                    && left.nr == right.nr
                    && right.end - left.start <= limit.max(4096)
                {
                    self.list[i - 1].end = right.end;
                    self.list.remove(i);
                    continue;
                }
            }
            i += 1;
        }
    }

    fn visit(&mut self, i: usize, min_score: u32) {
        if self.full() {
            return;
        }
        let mut skip = false;
        if let Some(mark) = self.resume {
            let r = self.list[i].clone();
            if r.end <= mark {
                skip = true;
            } else if r.start < mark {
                let n = ((mark - r.start) / 4096 * 4096).max(4096);
                if r.end - r.start > n {
                    self.cut(i, r.start + n);
                }
                skip = true;
            }
        }
        if i + 1 == self.list.len() {
            self.resume = None;
        }
        if skip {
            return;
        }
        let r = self.list[i].clone();
        if self.matches(&r) && Self::score(&r) >= min_score {
            self.apply(i);
        }
        if i + 1 == self.list.len() {
            self.snapshots += 1;
        }
    }

    fn apply(&mut self, i: usize) {
        let r = self.list[i].clone();
        let mut size = r.end - r.start;
        if self.charged + size > self.size {
            size = (self.size - self.charged) / 4096 * 4096;
            self.cut(i, r.start + size);
        }
        if self.kept_out(i) {
            return;
        }
        let r = self.list[i].clone();
        self.acted.extend((r.start / 4096) as u32..(r.end / 4096) as u32);
        self.charged += size;
        if self.full() {
            self.resume = Some(r.end);
        }
        self.list[i].age = 0;
        self.tried.0 += 1;
        self.tried.1 += size;
    }
}

proptest! {
    #[test]
    fn passes_equal_the_slow_model_and_keep_the_quota(
        pieces in prop::collection::vec((1u64..60, 0u32..=20, 0u32..4), 1..30),
        quota in 1u64..200,
        odd in 0u64..4096,
        min_nr in 0u32..12,
        keep_out in prop::option::of((0u64..400, 0u64..400)),
        steps in prop::collection::vec(1u64..700, 1..12),
    ) {
        let mut at = 0;
        let regions: Vec<Region> = pieces
            .iter()
            .map(|&(pages, nr_accesses, age)| {
                let start = at;
                at += pages * 4096;
                let nr_accesses_bp = u64::from(nr_accesses) * 10_000;
                Region { nr_accesses, nr_accesses_bp, age, ..Region::new(start, at) }
            })
            .collect();
        let keep_out = keep_out.map(|(start, pages)| (start * 4096, (start + pages + 1) * 4096));
        let size = quota * 4096 + odd;
        let mut settings = everything(size);
        settings.pattern.nr_accesses = Bounds::at_least(u64::from(min_nr));
        settings.quota.weights = Weights { size: 0, nr_accesses: 1, age: 0 };
        settings.filters = keep_out.iter().map(|&(start, end)| Filter::reject(FilterKind::Addr(start..end))).collect();
        let mut slow = Slow {
            list: regions
                .iter()
                .map(|r| SlowRegion { start: r.start, end: r.end, nr: r.nr_accesses, age: r.age })
                .collect(),
            size,
            window: None,
            charged: 0,
            resume: None,
            min_nr,
            tried: (0, 0),
            exceeds: 0,
            snapshots: 0,
            keep_out,
            acted: Vec::new(),
        };
        let mut bench = Bench::new(Profile::K72, regions, vec![settings]);
        let mut now = 1;
        for step in steps {
            now += step;
            bench.pass(now);
            slow.pass(now);
            let found: Vec<SlowRegion> = bench.monitor.targets()[0]
                .regions()
                .iter()
                .map(|r| SlowRegion { start: r.start, end: r.end, nr: r.nr_accesses, age: r.age })
                .collect();
            prop_assert_eq!(&found, &slow.list);
            prop_assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start) && found.last().unwrap().end == at);
            let statistics = *bench.schemes[0].statistics();
            prop_assert_eq!((statistics.nr_tried, statistics.sz_tried), slow.tried);
            prop_assert_eq!((statistics.qt_exceeds, statistics.nr_snapshots), (slow.exceeds, slow.snapshots));
            prop_assert_eq!(bench.schemes[0].quota().resume.map(|mark| mark.1), slow.resume);
            prop_assert!(bench.schemes[0].quota().charged <= size);
        }
        let acted: Vec<u32> = bench.env.acted.iter().map(|(_, page)| *page).collect();
        prop_assert_eq!(acted, slow.acted);
    }

    #[test]
    fn no_profile_exceeds_a_quota_in_force_or_loses_a_byte(
        seed: u64,
        profile in prop::sample::select(&Profile::ALL[..]),
        size_pages in 1u64..300,
        time_ms in 0u64..3,
        pages in 10u64..2000,
        intervals in 20u64..120,
    ) {
        let quota = Quota {
            size: size_pages * 4096,
            time_ms,
            reset_interval_ms: 200,
            weights: Weights { size: 0, nr_accesses: 3, age: 7 },
            ..Quota::default()
        };
        let hot = SchemeSettings {
            pattern: Pattern { nr_accesses: Bounds::at_least(2), ..Pattern::ANY },
            quota: quota.clone(),
            ..SchemeSettings::new(Action::LruPrio)
        };
        let cold = SchemeSettings {
            pattern: Pattern { nr_accesses: Bounds { min: 0, max: 0 }, ..Pattern::ANY },
            quota,
            ..SchemeSettings::new(Action::LruDeprio)
        };
        let run = || {
            let attributes = Attributes { aggr_interval: 50_000, max_nr_regions: 50, ..Attributes::default() };
            let target = Target::over(0..pages * 4096, 4096).unwrap();
            let monitor = Monitor::new(profile, attributes, vec![target], seed).unwrap();
            let scheme = |settings: &SchemeSettings| Scheme::new(settings.clone(), View::Physical, profile).unwrap();
            let mut kdamond = Kdamond::new(monitor, View::Physical, vec![scheme(&hot), scheme(&cold)], 0);
            let (mut env, mut now) = (Pages::default(), 0);
            for _ in 0..intervals {
                let Next::Sample { wait } = kdamond.begin(&mut env) else { panic!("always active") };
                now += wait;
                kdamond.finish(now, &mut env, &mut ());
                for scheme in kdamond.schemes() {
                    let state = scheme.quota();
                    assert!(state.effective_size == 0 || state.charged <= state.effective_size);
                    assert!(state.effective_size <= size_pages * 4096);
                }
                assert_eq!(kdamond.monitor().size(), pages * 4096);
            }
            (kdamond.monitor().targets().to_vec(), env.acted, env.work_ns)
        };
        let (regions, acted, work) = run();
        prop_assert!(regions[0].regions().windows(2).all(|pair| pair[0].end == pair[1].start));
        prop_assert_eq!(run(), (regions, acted, work), "the same seed gives the same run");
    }
}

#[test]
fn inactive_schemes_stop_monitoring_and_tried_regions_are_collected() {
    struct Free(Pages, u64);
    impl AccessSampler for Free {
        fn prepare(&mut self, target: usize, address: u64) {
            self.0.prepare(target, address);
        }
        fn accessed(&mut self, target: usize, address: u64) -> bool {
            self.0.accessed(target, address)
        }
    }
    impl SchemeActor for Free {
        fn free_permille(&self) -> u64 {
            self.1
        }
    }
    let watermarks = Watermarks { metric: WatermarkMetric::FreeMemRate, interval: 77, high: 200, mid: 150, low: 50 };
    let settings = SchemeSettings { watermarks, ..SchemeSettings::new(Action::Stat) };
    let target = Target::over(0..100 * 4096, 4096).unwrap();
    let monitor = Monitor::new(Profile::K72, Attributes::default(), vec![target], 1).unwrap();
    let schemes = vec![Scheme::new(settings, View::Physical, Profile::K72).unwrap()];
    let mut kdamond = Kdamond::new(monitor, View::Physical, schemes, 0);
    let mut env = Free(Pages::default(), 300);
    assert_eq!(kdamond.begin(&mut env), Next::Inactive { wait: 77 });
    env.1 = 100;
    kdamond.request_tried_regions();
    let mut now = 0;
    for _ in 0..20 {
        assert_eq!(kdamond.take_tried_regions(), None);
        assert_eq!(kdamond.begin(&mut env), Next::Sample { wait: 5000 });
        now += 5000;
        kdamond.finish(now, &mut env, &mut ());
    }
    let tried = kdamond.take_tried_regions().expect("one interval is over");
    assert_eq!(tried.iter().map(|tried| tried.region.size()).sum::<u64>(), 100 * 4096);
    assert!(tried.iter().all(|tried| tried.region.age > 0 || tried.region.nr_accesses > 0));
}

/// A number that changes with any border, count or age.
fn fingerprint(kdamond: &Kdamond) -> u64 {
    let fold = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x0100_0000_01b3);
    let regions = kdamond.monitor().targets().iter().flat_map(|target| target.regions());
    regions.fold(0xcbf2_9ce4_8422_2325, |hash, r| {
        [r.start, r.end, u64::from(r.nr_accesses), r.nr_accesses_bp, u64::from(r.last_nr_accesses), u64::from(r.age)]
            .into_iter()
            .fold(hash, fold)
    })
}

#[test]
fn runs_are_pinned() {
    let run = |profile| {
        let target = Target::over(0..4096 * 4096, 4096).unwrap();
        let monitor = Monitor::new(profile, Attributes::default(), vec![target], 42).unwrap();
        let scheme = |settings| Scheme::new(settings, View::Physical, profile).unwrap();
        let schemes = vec![scheme(everything(MIB)), scheme(SchemeSettings::new(Action::Stat))];
        let mut kdamond = Kdamond::new(monitor, View::Physical, schemes, 0);
        let (mut env, mut now) = (Pages::default(), 0);
        for _ in 0..400 {
            let Next::Sample { wait } = kdamond.begin(&mut env) else { panic!("always active") };
            now += wait;
            kdamond.finish(now, &mut env, &mut ());
        }
        let statistics = kdamond.schemes()[0].statistics();
        (kdamond.monitor().counters().checks, statistics.nr_tried, statistics.sz_tried / 4096, fingerprint(&kdamond))
    };
    let golden: Vec<_> = Profile::ALL.into_iter().map(run).collect();
    assert_eq!(
        golden,
        [
            (49680, 15, 512, 4056265968758700185),
            (53680, 15, 512, 5161472852751966312),
            (51320, 283, 41216, 4187699814092836479),
            (72100, 15, 512, 9411035506250281041)
        ]
    );
}
