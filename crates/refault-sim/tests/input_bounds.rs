//! What descriptions may ask for, so that no file takes memory or time without end.

use refault_core::mglru::{Mglru, MglruParams};
use refault_sim::machine::Machine;
use refault_sim::machine::scenario::Scenario;
use refault_sim::monitoring::pattern::Pattern;

#[test]
fn a_pattern_ends_within_hours() {
    let pattern =
        |milliseconds: u64| format!("a, 4096\n\nwait\n{milliseconds}\na, 1, 4096, 1\n\nlong\n5\na, 1, 4096, 1\n");
    assert!(Pattern::parse(&pattern(300)).is_ok());
    for endless in [4 * 3_600_000, 4_294_967_296, u64::MAX] {
        let error = Pattern::parse(&pattern(endless)).expect_err("too long").to_string();
        assert!(error.contains("more than 4 hours"), "{error}");
    }
}

fn machine(text: &str) -> Result<Machine, String> {
    let scenario = Scenario::parse(text, "s.toml").map_err(|error| error.to_string())?;
    Machine::new(scenario.config, Mglru::new(MglruParams::default()))
}

#[test]
fn a_scenario_names_at_most_a_tebibyte() {
    let text = |pages: u64| {
        format!(
            "[machine]\nmemory = \"16M\"\nfile_device = \"nvme\"\n\n[[task]]\nname = \"t\"\n\
             [[task.workload]]\nspec = \"uniform:pages={pages},accesses=1000,kind=anon\"\n"
        )
    };
    assert!(machine(&text(100)).is_ok());
    let error = machine(&text(1 << 29)).err().expect("too many pages");
    assert!(error.contains("more than 268435456 pages"), "{error}");
}

#[test]
fn a_machine_that_runs_for_long_keeps_a_bounded_number_of_samples() {
    // A second of CPU time per access: a million samples if each millisecond's state were kept.
    let text = "[machine]\nmemory = \"16M\"\nsample = \"1ms\"\nfile_device = \"nvme\"\n\n[[task]]\nname = \"t\"\ncpu = \"1s\"\n\
                [[task.workload]]\nspec = \"uniform:pages=100,accesses=1000,kind=anon\"\n";
    let report = machine(text).expect("a machine").run().expect("no trace to read");
    let lines = report.samples_csv().lines().count();
    assert!((1 << 15..=(1 << 16) + 1).contains(&lines), "{lines}");
}

#[test]
fn what_is_wrong_is_one_line_whatever_characters_values_hold() {
    let error =
        machine("[machine]\nmemory = \"16M\"\nfile_device = \"\\nvme\\u001b\"\n").err().expect("no such device");
    assert!(error.starts_with("s.toml:3: file_device: there is no device '\\nvme\\u{1b}'"), "{error}");
}
