//! A monitor and schemes over live memory: hot and cold are told apart, actions act, the policy's accessed bits survive.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use refault_core::monitor::{Attributes, Monitor, Profile, Region, Target, View};
use refault_core::schemes::{Action, Bounds, Kdamond, Observer, Pattern, Quota, Scheme, SchemeSettings};
use refault_pager::{Pager, PagerOptions, Watch};

const UNIT: u64 = 4096;

fn attributes() -> Attributes {
    Attributes { sample_interval: 1000, aggr_interval: 20_000, ops_update_interval: 20_000, ..Attributes::default() }
}

/// Threads that touch memory without pause get in each other's way: one test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn watch(pager: &Pager, attributes: Attributes, schemes: Vec<SchemeSettings>, most_cpu: f64) -> Watch {
    let target = Target::new(&pager.ranges(View::Physical), UNIT).expect("ranges");
    let monitor = Monitor::new(Profile::K72, attributes, vec![target], 1).expect("a monitor");
    let make = |settings| Scheme::new(settings, View::Physical, Profile::K72).expect("a scheme");
    let kdamond = Kdamond::new(monitor, View::Physical, schemes.into_iter().map(make).collect(), 0);
    Watch::new(pager, kdamond, most_cpu).expect("a watch")
}

fn run(watch: &mut Watch, time: Duration, observer: &mut impl Observer) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::thread::sleep(watch.step(observer).expect("there is memory to watch"));
    }
}

/// Sums of frequencies by address: below and above a border.
struct Halves {
    border: u64,
    sums: [u64; 2],
    sizes: [u64; 2],
}

impl Observer for Halves {
    fn aggregated(&mut self, _: usize, regions: &[Region]) {
        for region in regions {
            let half = usize::from(region.start >= self.border);
            self.sums[half] += u64::from(region.nr_accesses) * region.size();
            self.sizes[half] += region.size();
        }
    }
}

/// Touches the first `hot` pages again and again while `work` runs.
fn with_hot<T>(region: &[u8], hot: usize, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for page in 0..hot {
                    std::hint::black_box(region[page * PAGE]);
                }
            }
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn hot_memory_is_told_from_cold_memory() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let pager = pager(64, options());
    let mut region = pager.region(32 * MIB).expect("a region");
    (0..32 * MIB / PAGE).for_each(|page| write_page(&mut region[page * PAGE..][..PAGE], page, 1));
    let border = region.as_ptr() as u64 + 8 * MIB as u64;
    let mut halves = Halves { border, sums: [0; 2], sizes: [0; 2] };
    let mut watch = watch(&pager, attributes(), Vec::new(), 1.0);
    with_hot(&region, 8 * MIB / PAGE, || run(&mut watch, Duration::from_millis(1500), &mut halves));
    let mean = |half: usize| halves.sums[half] as f64 / halves.sizes[half].max(1) as f64;
    // 20 checks an aggregation. Regions that straddle the border blur the picture a little, and on a busy machine the
    // thread that touches does not run in each interval.
    assert!(mean(0) > 4.0 && mean(0) > 4.0 * mean(1), "hot {} cold {}", mean(0), mean(1));
    assert!(watch.kdamond().monitor().counters().checks > 1000);
    for page in (0..32 * MIB / PAGE).step_by(7) {
        check_page(&region[page * PAGE..][..PAGE], page, 1);
    }
}

#[test]
fn cold_memory_is_paged_out_within_its_quota_and_comes_back_whole() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let pager = pager(64, options());
    let mut region = pager.region(32 * MIB).expect("a region");
    (0..32 * MIB / PAGE).for_each(|page| write_page(&mut region[page * PAGE..][..PAGE], page, 1));
    let before = pager.budget().used_bytes();
    let mut pageout = SchemeSettings::new(Action::Pageout);
    pageout.pattern = Pattern { size: Bounds::ANY, nr_accesses: Bounds { min: 0, max: 0 }, age: Bounds::at_least(5) };
    pageout.quota = Quota { size: 1 << 20, reset_interval_ms: 100, ..Quota::default() };
    let mut watch = watch(&pager, attributes(), vec![pageout], 1.0);
    let start = Instant::now();
    with_hot(&region, 4 * MIB / PAGE, || run(&mut watch, Duration::from_millis(1500), &mut ()));
    let statistics = *watch.kdamond().schemes()[0].statistics();
    let gone = before - pager.budget().used_bytes();
    assert!(gone > 4 << 20 && statistics.sz_applied >= gone, "{gone} gone, {statistics:?}");
    let windows = start.elapsed().as_millis() as u64 / 100 + 2;
    assert!(statistics.sz_tried <= windows << 20, "{statistics:?} in {windows} windows");
    for page in 0..32 * MIB / PAGE {
        check_page(&region[page * PAGE..][..PAGE], page, 1);
    }
}

#[test]
fn sorting_protects_what_is_hot() {
    if skipped() {
        return;
    }
    let _alone = alone();
    for policy in ["mglru", "classic"] {
        let pager = pager(64, PagerOptions { policy: policy.to_owned(), ..options() });
        let mut region = pager.region(32 * MIB).expect("a region");
        (0..32 * MIB / PAGE).for_each(|page| write_page(&mut region[page * PAGE..][..PAGE], page, 1));
        let mut hot = SchemeSettings::new(Action::LruPrio);
        hot.pattern.nr_accesses = Bounds::at_least(10);
        let mut cold = SchemeSettings::new(Action::LruDeprio);
        cold.pattern.nr_accesses = Bounds { min: 0, max: 0 };
        let mut watch = watch(&pager, attributes(), vec![hot, cold], 1.0);
        with_hot(&region, 8 * MIB / PAGE, || run(&mut watch, Duration::from_millis(800), &mut ()));
        for scheme in watch.kdamond().schemes() {
            assert!(scheme.statistics().nr_applied > 0, "{policy}: {:?}", scheme.statistics());
        }
        assert_eq!(pager.report().lost, 0);
    }
}

#[test]
fn the_processor_time_stays_within_its_bound() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let pager = pager(256, options());
    let mut region = pager.region(128 * MIB).expect("a region");
    region.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    // 500 regions at 1 ms would take half a processor.
    let attributes = Attributes { min_nr_regions: 500, max_nr_regions: 1000, ..attributes() };
    let mut watch = watch(&pager, attributes, Vec::new(), 0.02);
    run(&mut watch, Duration::from_millis(2500), &mut ());
    let (cpu, wall) = (watch.cpu_ns(), watch.elapsed());
    run(&mut watch, Duration::from_millis(2000), &mut ());
    let share = (watch.cpu_ns() - cpu) as f64 / (watch.elapsed() - wall).as_nanos() as f64;
    assert!(share < 0.03, "{share}");
    assert!(watch.kdamond().monitor().attributes().sample_interval > attributes.sample_interval);
    assert_eq!(watch.kdamond().monitor().attributes().max_nr_accesses(), attributes.max_nr_accesses());
}

#[test]
fn a_record_has_exactly_the_pages_that_were_touched() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let pager = pager(64, PagerOptions { bring_successors: false, ..options() });
    let mut region = pager.region(16 * MIB).expect("a region");
    let mut runs = Vec::new();
    region[..64 * PAGE].fill(1);
    assert!(pager.take_accessed(&mut runs));
    let pages = |runs: &[(u32, u32)]| runs.iter().flat_map(|(first, n)| *first..first + n).collect::<Vec<_>>();
    let all = pages(&runs);
    assert_eq!(all.len(), 64);
    runs.clear();
    assert!(pager.take_accessed(&mut runs) && runs.is_empty(), "{runs:?}");
    for page in [3, 4, 17] {
        std::hint::black_box(region[page * PAGE]);
    }
    assert!(pager.take_accessed(&mut runs));
    assert_eq!(pages(&runs), [all[3], all[4], all[17]]);
    assert!(region[..64 * PAGE].iter().all(|byte| *byte == 1));
}

#[test]
fn distances_of_a_cyclic_scan_are_what_was_missing_and_pressure_is_counted() {
    if skipped() {
        return;
    }
    let _alone = alone();
    // 48 MiB in 32: under FIFO each page comes back after all others were evicted.
    let pager = pager(32, PagerOptions { policy: "fifo".to_owned(), bring_successors: false, ..options() });
    let mut region = pager.region(48 * MIB).expect("a region");
    let start = Instant::now();
    for _ in 0..4 {
        region.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
    }
    let report = pager.report();
    let median = report.distances.quantile(0.5) * PAGE as u64;
    // The distance is what is not resident; the reserve is kept free and buckets are an eighth wide.
    assert!((14 << 20..=20 << 20).contains(&median), "{median}");
    assert!(report.some_us > 0 && report.some_us <= start.elapsed().as_micros() as u64, "{}", report.some_us);
    assert!(region.iter().step_by(PAGE).all(|byte| *byte == 4));
}
