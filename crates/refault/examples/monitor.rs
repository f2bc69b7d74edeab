//! Finding hot memory by sampling: a monitor over an address space of one's own.
//!
//! `cargo run --example monitor`. The memory is 64 MiB of which the third quarter is in use all the time; the monitor
//! is told nothing of that and checks one address per region and sampling interval.

use refault::monitor::{AccessSampler, Attributes, Monitor, Profile, Region, Target, View};
use refault::schemes::{Kdamond, Next, Observer, SchemeActor};

const MIB: u64 = 1 << 20;
const HOT: std::ops::Range<u64> = 32 * MIB..48 * MIB;

/// Memory whose accessed bits are known without looking: what lies in `HOT` is always accessed.
struct Program;

impl AccessSampler for Program {
    fn prepare(&mut self, _target: usize, _address: u64) {}

    fn accessed(&mut self, _target: usize, address: u64) -> bool {
        HOT.contains(&address)
    }
}

impl SchemeActor for Program {}

/// Keeps the regions of the last aggregation.
#[derive(Default)]
struct Last(Vec<Region>);

impl Observer for Last {
    fn aggregated(&mut self, _target: usize, regions: &[Region]) {
        self.0 = regions.to_vec();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let attributes = Attributes::default();
    let target = Target::over(0..64 * MIB, attributes.min_region_size)?;
    let monitor = Monitor::new(Profile::default(), attributes, vec![target], 1)?;
    let mut kdamond = Kdamond::new(monitor, View::Virtual, Vec::new(), 0);
    let (mut now, mut last) = (0, Last::default());
    while now < 5_000_000 {
        match kdamond.begin(&mut Program) {
            Next::Sample { wait } => {
                now += wait;
                kdamond.finish(now, &mut Program, &mut last);
            }
            Next::Inactive { wait } => now += wait,
            Next::Ended => break,
        }
    }
    for region in &last.0 {
        let part = f64::from(region.nr_accesses) / f64::from(attributes.max_nr_accesses());
        println!(
            "{:5.1} to {:5.1} MiB: accessed in {:3.0} % of checks",
            mib(region.start),
            mib(region.end),
            100.0 * part
        );
    }
    let hot: u64 =
        last.0.iter().filter(|region| region.nr_accesses * 2 > attributes.max_nr_accesses()).map(Region::size).sum();
    println!("hot: {:.1} MiB found, {:.1} MiB true", mib(hot), mib(HOT.end - HOT.start));
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}
