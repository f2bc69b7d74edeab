//! How much of the truth the monitor finds, at how many checks: patterns that are known exactly, monitored with growing
//! numbers of regions.
//!
//! ```
//! use refault_sim::monitoring::accuracy::{Options, measure};
//! use refault_sim::monitoring::pattern::Pattern;
//!
//! let pattern = Pattern::parse("hot, 262144\ncold, 786432\n\nrun\n2500\nhot, 1, 0, 1\n")?;
//! let found = measure(&pattern, &Options { accesses_per_second: 20_000, ..Options::default() });
//! assert!(found.checks_per_second() > 0.0 && found.cost_share() < 1.0);
//! # Ok::<(), refault_sim::monitoring::pattern::PatternError>(())
//! ```

use refault_core::monitor::accuracy::{Accuracy, ExactHistory};
use refault_core::monitor::{AccessSampler, Attributes, Monitor, MonitorCounters, Profile, Region, Target, View};
use refault_core::schemes::{Kdamond, Next, Observer, SchemeActor};

use super::heat_map::HeatMap;
use super::pattern::Pattern;

const PAGE: u64 = 4096;
/// Aggregations at the start that do not count: one region does not know anything yet.
const WARM_UP: u64 = 20;
const COLUMNS: usize = 64;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose rules.
    pub profile: Profile,
    /// Intervals and bounds.
    pub attributes: Attributes,
    /// Speed of the program.
    pub accesses_per_second: u64,
    /// Seed of the pattern and of the monitor.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            profile: Profile::default(),
            attributes: Attributes::default(),
            accesses_per_second: 1_000_000,
            seed: 1,
        }
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Found {
    /// Sums over pages and aggregations, without the first twenty.
    pub accuracy: Accuracy,
    /// What the monitor did.
    pub counters: MonitorCounters,
    /// Checks that looking at every page would have taken.
    pub page_checks: u64,
    /// Simulated seconds.
    pub seconds: f64,
    /// Frequencies by time and address as they were.
    pub truth: HeatMap,
    /// The same as the monitor has them.
    pub found: HeatMap,
}

impl Found {
    /// Checks per second.
    pub fn checks_per_second(&self) -> f64 {
        self.counters.checks as f64 / self.seconds.max(1e-9)
    }

    /// Checks over those that looking at every page would have taken.
    pub fn cost_share(&self) -> f64 {
        self.counters.checks as f64 / self.page_checks.max(1) as f64
    }
}

/// Which pages were accessed in the open interval.
struct Sightings {
    seen_in: Vec<u64>,
    interval: u64,
}

impl AccessSampler for Sightings {
    fn prepare(&mut self, _: usize, _: u64) {}

    fn accessed(&mut self, _: usize, address: u64) -> bool {
        self.seen_in[(address / PAGE) as usize] == self.interval
    }
}

impl SchemeActor for Sightings {}

struct Judge {
    history: ExactHistory,
    window: u32,
    aggregations: u64,
    accuracy: Accuracy,
    truth: HeatMap,
    found: HeatMap,
}

impl Observer for Judge {
    fn aggregated(&mut self, _: usize, regions: &[Region]) {
        let hot = self.window.div_ceil(2);
        if self.aggregations >= WARM_UP {
            self.accuracy.merge(&self.history.compare(regions, self.window, hot));
        }
        self.truth.push_pages(self.history.counts(), self.window);
        self.found.push_regions(regions, self.history.counts().len(), PAGE, self.window);
        self.history.reset();
        self.aggregations += 1;
    }
}

/// Monitors a pattern from its start to its end. A page is called hot when half of the checks find it.
///
/// # Panics
/// If the attributes are not legal under the profile, or tune themselves: the truth is counted in fixed intervals.
pub fn measure(pattern: &Pattern, options: &Options) -> Found {
    let attributes = options.attributes;
    assert!(attributes.intervals_goal.is_none(), "the truth is counted in fixed intervals");
    let range = 0..pattern.pages() * PAGE;
    let target = Target::over(range.clone(), attributes.min_region_size).expect("invariant: a pattern has pages");
    let monitor = Monitor::new(options.profile, attributes, vec![target], options.seed)
        .expect("the attributes must be legal under the profile");
    let mut kdamond = Kdamond::new(monitor, View::FixedVirtual, Vec::new(), 0);
    let mut player = pattern.start(options.accesses_per_second, options.seed);
    let mut sightings = Sightings { seen_in: vec![0; pattern.pages() as usize], interval: 0 };
    let mut judge = Judge {
        history: ExactHistory::new(range, PAGE),
        window: attributes.max_nr_accesses(),
        aggregations: 0,
        accuracy: Accuracy::default(),
        truth: HeatMap::new(COLUMNS),
        found: HeatMap::new(COLUMNS),
    };
    let mut now = 0;
    let mut entries = Vec::new();
    let end = pattern.milliseconds() * 1000;
    while now < end {
        let Next::Sample { wait } = kdamond.begin(&mut sightings) else { break };
        let wait = wait.max(1);
        let count = |time: u64| u128::from(time) * u128::from(options.accesses_per_second) / 1_000_000;
        let then = now.saturating_add(wait);
        let accesses = u64::try_from(count(then) - count(now)).unwrap_or(u64::MAX);
        now = then;
        sightings.interval += 1;
        entries.clear();
        player.play(accesses, &mut entries);
        for entry in &entries {
            sightings.seen_in[entry.page() as usize] = sightings.interval;
            judge.history.access(entry.page() * PAGE);
        }
        judge.history.next_interval();
        kdamond.finish(now, &mut sightings, &mut judge);
    }
    let counters = *kdamond.monitor().counters();
    Found {
        accuracy: judge.accuracy,
        counters,
        page_checks: counters.intervals * pattern.pages(),
        seconds: now as f64 / 1e6,
        truth: judge.truth,
        found: judge.found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four areas at once for a second, then each for two.
    fn short() -> Pattern {
        let areas: String = (0..4).map(|i| format!("a{i}, 4000000\n")).collect();
        let all: String = (0..4).map(|i| format!("a{i}, 0, 4096, 1\n")).collect();
        let each: String = (0..4).map(|i| format!("\na{i}\n2000\na{i}, 0, 4096, 1\n")).collect();
        Pattern::parse(&format!("{areas}\nall\n1000\n{all}{each}")).unwrap()
    }

    fn found(pattern: &Pattern, max_nr_regions: usize, profile: Profile) -> Found {
        let attributes = Attributes { max_nr_regions, ..Attributes::default() };
        let options = Options { profile, attributes, accesses_per_second: 400_000, ..Options::default() };
        measure(pattern, &options)
    }

    #[test]
    fn stairs_are_found_at_a_hundredth_of_the_checks() {
        for profile in Profile::ALL {
            let found = found(&short(), 100, profile);
            let accuracy = &found.accuracy;
            assert!(found.cost_share() < 0.02, "{profile:?} {}", found.cost_share());
            assert!(accuracy.events_found().unwrap() > 0.8, "{profile:?} {accuracy:?}");
            assert!(accuracy.hot_found().unwrap() > 0.8, "{profile:?} {accuracy:?}");
            assert!(accuracy.mean_error() < 0.1, "{profile:?} {}", accuracy.mean_error());
        }
    }

    #[test]
    fn more_regions_find_more_of_a_small_hot_spot() {
        let text = "cold, 16777216\nhot, 524288\nmore, 16777216\n\nrun\n15000\nhot, 1, 0, 1\n";
        let pattern = Pattern::parse(text).unwrap();
        let few = found(&pattern, 10, Profile::K72);
        let many = found(&pattern, 500, Profile::K72);
        assert!(few.counters.checks < many.counters.checks);
        let error = |found: &Found| found.accuracy.mean_error();
        assert!(error(&many) < error(&few), "{} {}", error(&few), error(&many));
        assert!(
            many.accuracy.hot_found().unwrap() > 0.9 && many.accuracy.hot_right().unwrap() > 0.5,
            "{:?}",
            many.accuracy
        );
    }

    #[test]
    fn measurements_are_pinned() {
        let found = found(&short(), 100, Profile::K72);
        let accuracy = &found.accuracy;
        assert_eq!(
            (found.counters.checks, accuracy.true_events, accuracy.found_events, accuracy.common_events),
            (60_900, 1_367_800, 1_366_208, 1_359_436)
        );
    }
}
