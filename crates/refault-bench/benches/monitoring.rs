//! What monitoring costs a simulation, and whether schemes cost in proportion to regions.
//!
//! `cargo bench -p refault-bench --bench monitoring -- [PAGES] [REGIONS]`: by default 2^24 pages and 1000 regions. The
//! first table replays uniform accesses over all pages with the monitor over them, at several speeds of the simulated
//! program. The intervals are the defaults: a check of each region every 5 ms. The table tells which part of the real
//! time went into monitor and schemes. The second table runs monitor and schemes over memory that answers from a
//! counter, at several numbers of regions. It tells the time of one region at one pass.

use std::ops::Range;
use std::time::Instant;

use refault_core::monitor::{AccessSampler, Attributes, Monitor, Profile, Target, View};
use refault_core::schemes::{Action, Folio, Kdamond, Next, Scheme, SchemeActor, SchemeSettings};
use refault_core::{Classic, ClassicParams, Mglru, MglruParams, Policy};
use refault_sim::flat_memory::Swap;
use refault_sim::monitoring::config::Config;
use refault_sim::monitoring::monitored::MonitoredReplay;
use refault_sim::{Access, Layout, LayoutBuilder, Limits, Replay};
use refault_trace::{Entry, Source};

const PAGE: u64 = 4096;
/// Accesses a simulated second.
const SPEEDS: [u64; 3] = [10_000_000, 30_000_000, 100_000_000];
/// Simulated seconds of a row after the memory is filled.
const SECONDS: f64 = 0.5;

fn main() {
    let mut numbers = std::env::args().skip(1).filter(|a| !a.starts_with("--")).filter_map(|a| a.parse().ok());
    let pages: u64 = numbers.next().unwrap_or(1 << 24);
    let regions: u64 = numbers.next().unwrap_or(1000);

    println!("{pages} pages, {regions} regions asked for, monitor and a scheme `stat` over a replay");
    println!("policy   M accesses/simulated s  regions    checks  ns/check  replay s  monitor s  share %");
    let layout = layout(pages);
    replay_rows("classic", &layout, regions, || Classic::new(ClassicParams::default()));
    replay_rows("mglru", &layout, regions, || Mglru::new(MglruParams::default()));

    println!("\nmonitor and two schemes over memory that costs nothing");
    println!("regions   ns/region and check  ns/region and pass of both schemes");
    for regions in [1_000, 4_000, 16_000, 64_000] {
        let (check, pass) = per_region(regions);
        println!("{regions:7} {check:21.1} {pass:35.1}");
    }
}

fn spec(pages: u64, accesses: u64) -> Source {
    let spec = format!("uniform:pages={pages},accesses={accesses},kind=anon");
    Source::workload(spec.parse().expect("a valid workload"))
}

fn layout(pages: u64) -> Layout {
    let mut builder = LayoutBuilder::new();
    for block in (0..pages).step_by(1 << 16) {
        builder.observe(&entries(block..(block + (1 << 16)).min(pages)));
    }
    builder.finish().expect("fewer than 2^32 pages")
}

fn entries(pages: Range<u64>) -> Vec<Entry> {
    pages.map(|page| Entry::new(page, refault_trace::Kind::Anon, false)).collect()
}

fn replay_rows<P: Policy + Send + 'static>(name: &str, layout: &Layout, regions: u64, policy: impl Fn() -> P) {
    for speed in SPEEDS {
        let text = format!("nr_regions = {{ min = {regions}, max = {regions} }}\n[[schemes]]\naction = \"stat\"\n");
        let config = Config::parse(&text, "bench").expect("a valid configuration");
        let pages = layout.distinct_pages();
        let limits = Limits { memory_pages: pages as usize, swap: Swap::default() };
        let mut replay = Replay::new(layout, policy(), limits);
        let mut accesses: Vec<Access> = Vec::new();
        for block in (0..pages).step_by(1 << 16) {
            accesses.clear();
            layout.translate(&entries(block..(block + (1 << 16)).min(pages)), &mut accesses);
            replay.run(&accesses);
        }
        let mut monitored = MonitoredReplay::new(Box::new(replay), pages, pages, &config, speed, 1)
            .expect("a scheme that all policies take");
        let mut reader = spec(pages, (speed as f64 * SECONDS) as u64).open().expect("a workload needs no file");
        let (mut buffer, mut seconds) = (Vec::new(), 0.0);
        loop {
            let block = reader.next_block(&mut buffer).expect("a workload cannot fail");
            if block.is_empty() {
                break;
            }
            accesses.clear();
            layout.translate(block, &mut accesses);
            let start = Instant::now();
            monitored.run(&accesses, &mut ());
            seconds += start.elapsed().as_secs_f64();
        }
        let checks = monitored.kdamond().monitor().counters().checks;
        let spent = monitored.spent().as_secs_f64();
        println!(
            "{name:8} {:22} {:8} {checks:9} {:9.0} {:9.2} {spent:10.4} {:8.2}",
            speed / 1_000_000,
            monitored.kdamond().monitor().nr_regions(),
            spent / checks.max(1) as f64 * 1e9,
            seconds - spent,
            spent / seconds * 100.0,
        );
    }
}

/// Memory that answers from a counter.
struct Free(u64);

impl AccessSampler for Free {
    fn prepare(&mut self, _: usize, _: u64) {}

    fn accessed(&mut self, _: usize, address: u64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(address | 1);
        self.0 >> 63 == 1
    }
}

impl SchemeActor for Free {
    fn refuses(&self, _: &Action) -> Option<&'static str> {
        None
    }

    fn folio(&mut self, _: usize, _: u64) -> Option<Folio> {
        None
    }

    fn act(&mut self, _: &Action, _: &Folio) -> u64 {
        0
    }

    fn free_permille(&self) -> u64 {
        0
    }
}

/// Nanoseconds of a region at a check, and at a pass of two schemes beyond what monitoring alone takes.
fn per_region(regions: u64) -> (f64, f64) {
    const AGGREGATIONS: u64 = 40;
    let mut seconds = [f64::INFINITY; 2];
    for (with_schemes, best) in seconds.iter_mut().enumerate() {
        for _ in 0..3 {
            *best = best.min(watch(regions, with_schemes == 1, AGGREGATIONS));
        }
    }
    let checks = (AGGREGATIONS * 20 * regions) as f64;
    let passes = (AGGREGATIONS * regions) as f64;
    (seconds[0] / checks * 1e9, (seconds[1] - seconds[0]) / passes * 1e9)
}

/// Seconds of monitoring with exactly `regions` regions.
fn watch(regions: u64, with_schemes: bool, aggregations: u64) -> f64 {
    let count = regions as usize;
    let attributes = Attributes { min_nr_regions: count, max_nr_regions: count, ..Attributes::default() };
    let unit = attributes.min_region_size;
    let mut target = Target::over(0..regions * 64 * PAGE, unit).expect("one range is in order");
    target.start_in_pieces(Profile::K72, count, unit);
    let monitor = Monitor::new(Profile::K72, attributes, vec![target], 1).expect("legal attributes");
    let scheme =
        || Scheme::new(SchemeSettings::new(Action::Stat), View::Virtual, Profile::K72).expect("a legal scheme");
    let schemes = if with_schemes { vec![scheme(), scheme()] } else { Vec::new() };
    let mut kdamond = Kdamond::new(monitor, View::Virtual, schemes, 0);
    let (mut memory, mut now) = (Free(1), 0);
    let start = Instant::now();
    for _ in 0..aggregations * 20 {
        let Next::Sample { wait } = kdamond.begin(&mut memory) else { unreachable!("no watermarks are set") };
        now += wait;
        kdamond.finish(now, &mut memory, &mut ());
    }
    start.elapsed().as_secs_f64()
}
