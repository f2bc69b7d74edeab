//! Generations in the layout of the kernel's debugging files, `lru_gen` and `lru_gen_full` (spec: mglru §15).
//!
//! Kernel: `lru_gen_seq_show`, `lru_gen_seq_show_full` in `mm/vmscan.c`.
//!
//! ```
//! use refault_core::policy::{PolicySpec, TierHistory};
//! use refault_sim::machine::scenario::Scenario;
//! use refault_sim::named;
//!
//! let text = r#"
//!     [machine]
//!     memory = "16M"
//!     [[task]]
//!     name = "t"
//!     [[task.workload]]
//!     spec = "uniform:pages=64,accesses=999"
//!     [[event]]
//!     at = "1us"
//!     list_full = true
//! "#;
//! let scenario = Scenario::parse(text, "s.toml")?;
//! let report = named::machine(&PolicySpec::parse("mglru")?, scenario.config)?.run()?;
//! assert!(report.listings[0].text.contains("memcg     0 /"));
//! assert!(report.listings[0].text.contains("0T"), "what walks have met stands at the youngest generation");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write;

use refault_core::policy::{GenerationDetails, TierHistory};

use super::Machine;

impl Machine {
    /// As `lru_gen`: the generations in the windows of all lruvecs.
    pub(super) fn list_generations(&self) -> String {
        let mut text = String::new();
        for (id, group) in self.memory.groups.iter().enumerate() {
            let _ = writeln!(text, "memcg {id:5} {}", group.name);
            for node in 0..self.memory.nodes.len() {
                let _ = writeln!(text, " node {node:5}");
                for generation in self.policy.generations(self.memory.lruvec_of(id, node)) {
                    let age = self.now.saturating_sub(generation.birth) / 1_000_000;
                    let [anon, file] = generation.pages;
                    let _ = writeln!(text, " {:10} {age:10} {anon:10} {file:10} ", generation.seq);
                }
            }
        }
        text
    }

    /// As `lru_gen_full`.
    pub(super) fn list_generations_in_full(&self) -> String {
        let mut text = String::new();
        for (id, group) in self.memory.groups.iter().enumerate() {
            let _ = writeln!(text, "memcg {id:5} {}", group.name);
            for node in 0..self.memory.nodes.len() {
                let _ = writeln!(text, " node {node:5}");
                for details in self.policy.generation_details(self.memory.lruvec_of(id, node)) {
                    let age = self.now.saturating_sub(details.size.birth) / 1_000_000;
                    write_details(&mut text, &details, age);
                }
            }
        }
        text
    }
}

/// A line of sizes, a line for each tier, and at the youngest generation one of what walks have met.
fn write_details(text: &mut String, details: &GenerationDetails, age: u64) {
    let mark = |t: usize| if details.gone[t] { 'x' } else { ' ' };
    let [anon, file] = details.size.pages;
    let _ = writeln!(text, " {:10} {age:10} {anon:10}{} {file:10}{}", details.size.seq, mark(0), mark(1));
    for (tier, types) in details.tiers.iter().enumerate() {
        let _ = write!(text, " {:10} {tier:10}", "");
        for history in types {
            let numbers = match *history {
                TierHistory::None => [(0, 'x'); 3],
                TierHistory::Averages { refaulted, total } => [(refaulted, 'R'), (total, 'T'), (0, 'x')],
                TierHistory::Current { refaulted, evicted, protected } => {
                    [(refaulted, 'r'), (evicted, 'e'), (protected, 'p')]
                }
            };
            for (number, letter) in numbers {
                let _ = write!(text, " {number:10}{letter}");
            }
        }
        text.push('\n');
    }
    if let Some(walks) = details.walks {
        let met = [walks.leaf_total, walks.leaf_young, walks.regions_found, walks.regions_added];
        let _ = write!(text, " {:10} {:10}", "", "");
        for (number, letter) in met.into_iter().zip("TYFA".chars()) {
            let _ = write!(text, " {number:10}{letter}");
        }
        text.push('\n');
    }
}
