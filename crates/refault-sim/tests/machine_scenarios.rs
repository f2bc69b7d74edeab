//! Any text is a scenario or is refused with one line; any scenario comes to an end. The fuzz target `scenario` looks
//! for the same with texts of its own.

use proptest::prelude::*;
use refault_core::classic::{Classic, ClassicParams};
use refault_core::mglru::{Mglru, MglruParams};
use refault_sim::machine::Machine;
use refault_sim::machine::scenario::Scenario;

const LINES: &[&str] = &[
    "[machine]",
    "cpus = 2",
    "memory = \"2M\"",
    "nodes = [\"1M\", \"2M\"]",
    "swap = \"4M\"",
    "swap_device = \"zram-lz4\"",
    "swap_device = \"hdd\"",
    "file_device = \"d\"",
    "min_ttl = \"1ms\"",
    "kill_trigger = \"full 1000 500000\"",
    "duration = \"20ms\"",
    "readahead = \"64K\"",
    "dirty_ratio = 1",
    "dirty_background_ratio = 0",
    "[[device]]",
    "name = \"d\"",
    "bandwidth = \"1M\"",
    "parallel = 1",
    "[[group]]",
    "name = \"/g\"",
    "max = \"40p\"",
    "high = \"32p\"",
    "low = \"1M\"",
    "min = \"1M\"",
    "swap_max = \"0p\"",
    "[[file]]",
    "name = \"f\"",
    "size = \"3M\"",
    "[[task]]",
    "name = \"t\"",
    "count = 3",
    "group = \"/g\"",
    "restart_after = \"0ns\"",
    "rounds = 9",
    "think = \"1us\"",
    "[[task.workload]]",
    "spec = \"uniform:pages=700,accesses=4000,writes=0.5\"",
    "spec = \"cyclic:pages=700,accesses=4000,kind=fd\"",
    "spec = \"zipf:theta=1,pages=700,accesses=4000,kind=mapped\"",
    "file = \"f\"",
    "fd_write = 1.0",
    "[[event]]",
    "at = \"1ms\"",
    "reclaim = \"1M\"",
    "lru_gen = \"+ 1 0 max; - 1 0 max-2\"",
    "list = true",
];

/// A valid scenario of which lines are left out, doubled and put elsewhere.
const BASE: &str = "[machine]\ncpus = 2\nmemory = \"2M\"\nswap = \"1M\"\nswap_device = \"nvme\"\nduration = \"30ms\"\n\
    [[group]]\nname = \"/g\"\nmax = \"1M\"\n[[file]]\nname = \"f\"\nsize = \"3M\"\n\
    [[task]]\nname = \"t\"\ngroup = \"/g\"\ncount = 2\n[[task.workload]]\n\
    spec = \"uniform:pages=700,accesses=4000,writes=0.5\"\n[[task.workload]]\n\
    spec = \"cyclic:pages=700,accesses=4000,kind=fd\"\nfile = \"f\"\n\
    [[event]]\nat = \"1ms\"\nlru_gen = \"+ 1 0 max\"\n";

fn changed() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), 0..3u8, prop::sample::select(LINES));
    prop::collection::vec(change, 0..5).prop_map(|changes| {
        let mut lines: Vec<String> = BASE.lines().map(str::to_string).collect();
        for (at, kind, line) in changes {
            let at = at.index(lines.len());
            match kind {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, line.to_string()),
                _ => lines[at] = line.to_string(),
            }
            if lines.is_empty() {
                break;
            }
        }
        lines.join("\n")
    })
}

fn check(text: &str) {
    let scenario = match Scenario::parse(text, "s.toml") {
        Ok(scenario) => scenario,
        Err(error) => {
            let line = error.to_string();
            assert!(line.starts_with("s.toml:") && !line.contains('\n'), "{line}");
            return;
        }
    };
    let mut config = scenario.config;
    config.duration = Some(config.duration.unwrap_or(u64::MAX).min(50_000_000));
    config.restarts = 50;
    if let Ok(mut machine) = Machine::new(config.clone(), Mglru::new(MglruParams::default())) {
        machine.run().expect("generated workloads do not fail");
    }
    if let Ok(mut machine) = Machine::new(config, Classic::new(ClassicParams::default())) {
        machine.run().expect("generated workloads do not fail");
    }
}

#[test]
fn the_unchanged_scenario_is_valid() {
    assert!(Scenario::parse(BASE, "s.toml").is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_scenarios_are_refused_or_come_to_an_end(text in changed()) {
        check(&text);
    }

    #[test]
    fn lines_in_any_order_never_panic(lines in prop::collection::vec(prop::sample::select(LINES), 0..20)) {
        check(&lines.join("\n"));
    }
}
