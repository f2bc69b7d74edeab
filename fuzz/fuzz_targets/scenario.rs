//! Scenario files: any text is a scenario or one line that says where it is none; small ones run to an end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refault_core::{Mglru, MglruParams};
use refault_sim::machine::Machine;
use refault_sim::machine::scenario::Scenario;

fuzz_target!(|text: &str| {
    let scenario = match Scenario::parse(text, "s.toml") {
        Ok(scenario) => scenario,
        Err(error) => {
            let line = error.to_string();
            assert!(line.starts_with("s.toml:") && !line.contains('\n'), "{line}");
            return;
        }
    };
    let mut config = scenario.config;
    let pages: u64 = config.tasks.iter().map(|task| u64::from(task.anon_pages)).sum::<u64>()
        + config.files.iter().map(|file| u64::from(file.pages)).sum::<u64>();
    if pages > 1 << 16 || config.nodes.iter().sum::<u64>() > 1 << 20 || config.tasks.len() > 16 || config.cpus > 16 {
        return;
    }
    config.duration = Some(config.duration.unwrap_or(u64::MAX).min(20_000_000));
    config.sample_interval = 0;
    config.restarts = config.restarts.min(100);
    if let Ok(mut machine) = Machine::new(config, Mglru::new(MglruParams::default())) {
        let _ = machine.run();
    }
});
