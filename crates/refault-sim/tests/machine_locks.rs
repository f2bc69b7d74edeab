//! Several kswapds and the lock of one file's tree.

use refault_core::classic::{Classic, ClassicParams};
use refault_sim::machine::Machine;
use refault_sim::machine::costs::Work;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;

/// Random reads of twice memory by eight readers.
fn run(nodes: usize, one_file: bool, costs: &str) -> Report {
    let node = format!("\"{}M\"", 64 / nodes);
    let mut text = format!("[machine]\ncpus = 8\nnodes = [{}]\nduration = \"1s\"\n", vec![node; nodes].join(", "));
    text += costs;
    let files = if one_file { 1 } else { 8 };
    for file in 0..files {
        text += &format!("[[file]]\nname = \"f{file}\"\nsize = \"{}M\"\n", 128 / files);
    }
    for reader in 0..8 {
        let (file, offset) = if one_file { (0, reader * 4096) } else { (reader, 0) };
        text += &format!(
            "[[task]]\nname = \"r{reader}\"\nnode = {}\ncpu = \"1us\"\n[[task.workload]]\nfile = \"f{file}\"\noffset = \"{offset}p\"\n\
             random = true\nspec = \"uniform:pages=4096,accesses=9000000,kind=fd,seed={reader}\"\n",
            reader % nodes
        );
    }
    let scenario = Scenario::parse(&text, "s.toml").unwrap();
    Machine::new(scenario.config, Classic::new(ClassicParams::default())).unwrap().run().unwrap()
}

/// Per cent of kswapd's time.
fn waiting(report: &Report) -> f64 {
    assert!(report.statistics.kswapd_passes > 20, "kswapd has work: {} passes", report.statistics.kswapd_passes);
    let work = &report.ledgers[0];
    100.0 * work.0[Work::Lock as usize] as f64 / work.total() as f64
}

#[test]
fn four_kswapds_wait_for_the_lock_of_one_file() {
    let (four, one, many) = (waiting(&run(4, true, "")), waiting(&run(1, true, "")), waiting(&run(4, false, "")));
    assert_eq!(one, 0.0, "one kswapd waits for no other");
    assert!(four > 0.5 && many < four / 2.0, "{four} % with one file, {many} % with eight");
    let short = waiting(&run(4, true, "[costs]\ntree_lock = 0\n"));
    assert_eq!(short, 0.0, "a lock that is held for no time is not waited for");
}
