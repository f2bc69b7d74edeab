//! Nanoseconds of CPU time that the machine takes for one access, at growing sizes of idle memory.
//!
//! `cargo run --release -p refault-sim --example machine_speed [accesses]`

use refault_core::classic::{Classic, ClassicParams};
use refault_core::mglru::{Mglru, MglruParams};
use refault_core::policy::Policy;
use refault_core::textbook::Clock;
use refault_sim::machine::Machine;
use refault_sim::machine::scenario::Scenario;

/// CPU time of this process, so that other load on the machine does not count.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux with scheduler statistics");
    let nanoseconds: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    nanoseconds / 1e9
}

fn measure<P: Policy>(name: &str, policy: P, pages: u64, share: f64, accesses: u64, generator: &str) {
    let kind = generator.split_once("kind=").map_or("fd", |(_, kind)| kind);
    let wanted: Vec<String> = std::env::args().skip(2).collect();
    if !wanted.is_empty() && (wanted[0] != name || wanted[1] != kind) {
        return;
    }
    let memory = (pages as f64 * share) as u64;
    let text = format!(
        r#"
[machine]
cpus = 4
memory = "{memory}p"
swap = "{pages}p"
swap_device = "nvme"
file_device = "nvme"
[[file]]
name = "data"
size = "{pages}p"
[[task]]
name = "worker"
count = 4
[[task.workload]]
spec = "{generator},pages={each},accesses={per_task}"
file = "data"
random = true
"#,
        each = if kind == "anon" { pages / 4 } else { pages },
        per_task = accesses / 4,
    );
    let scenario = Scenario::parse(&text, "speed").expect("a valid scenario");
    let start = cpu_seconds();
    let mut machine = Machine::new(scenario.config, policy).expect("a machine");
    let built = cpu_seconds() - start;
    let report = machine.run().expect("no trace to fail");
    let spent = cpu_seconds() - start;
    println!(
        "{name:8} {kind:6} pages 2^{:2} memory {:3.0} %: {:6.2} s ({:.2} s to build), {:6.1} ns an access, {} major faults, {:.1} simulated s",
        pages.ilog2(),
        share * 100.0,
        spent,
        built,
        spent * 1e9 / report.accesses as f64,
        report.counters.pgmajfault,
        report.elapsed as f64 / 1e9,
    );
}

fn main() {
    let accesses = std::env::args().nth(1).map_or(50_000_000, |text| text.parse().expect("a number of accesses"));
    for generator in ["zipf:theta=1.0,kind=anon", "zipf:theta=1.0,kind=fd", "zipf:theta=1.0,kind=mapped"] {
        measure("clock", Clock::default(), 1 << 20, 0.5, accesses, generator);
        measure("classic", Classic::new(ClassicParams::default()), 1 << 20, 0.5, accesses, generator);
        measure("mglru", Mglru::new(MglruParams::default()), 1 << 20, 0.5, accesses, generator);
    }
    // The same work with more and more memory that nobody touches.
    for bits in [18, 20, 22, 24] {
        let generator = "scanhot:hot=8192,hot_share=0.9375,kind=fd";
        measure("mglru", Mglru::new(MglruParams::default()), 1 << bits, 0.5, accesses / 5, generator);
    }
}
