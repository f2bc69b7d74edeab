//! What keeps a run's budget, the pager or the kernel, and which of them `auto` takes.
//!
//! The pager is right for nearly everything. A program into which nothing can be preloaded is the kernel's, where this
//! user may make a cgroup; so is every program where the pager's calls are refused.

use std::ffi::OsString;

use clap::ValueEnum;
use refault_core::statistics::{self as names, Statistic};
use refault_image::Obstacle;
use refault_kernel::Places;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{launch, program};

/// What keeps a budget.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Faults are served in the program.
    #[default]
    Pager,
    /// A memory cgroup, and swap on zram.
    Kernel,
}

impl Backend {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Pager => "pager",
            Backend::Kernel => "kernel",
        }
    }
}

/// `--backend`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The pager, and the kernel for programs that it cannot manage
    Auto,
    /// Faults served in the program, without privilege
    Pager,
    /// A memory cgroup and swap on zram: any program, with the right to make a cgroup
    Kernel,
}

/// What was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) backend: Backend,
    /// Empty where nothing is to be said.
    pub(super) reason: String,
}

/// Chooses for a program. Nothing is started.
pub(super) fn choose(program: &[OsString], wanted: Wanted, needs_pager: bool, places: &Places) -> Chosen {
    let pager = |reason| Chosen { backend: Backend::Pager, reason };
    let kernel = |reason| Chosen { backend: Backend::Kernel, reason };
    match wanted {
        Wanted::Pager => return pager(String::new()),
        Wanted::Kernel => return kernel("asked for".to_owned()),
        Wanted::Auto if needs_pager => return pager(String::new()),
        Wanted::Auto => {}
    }
    let why = match obstacle(program) {
        Some(obstacle) => obstacle.to_string(),
        None => match launch::kernel_obstacle() {
            Some(obstacle) if !obstacle.is_nested => obstacle.what.to_owned(),
            _ => return pager(String::new()),
        },
    };
    match refault_kernel::examine(places) {
        Ok(_) => kernel(why),
        // The pager's own words say that it cannot.
        Err(refusal) => pager(format!("{refusal}: {}; {}", refusal.place(), refusal.remedy())),
    }
}

/// Why a program cannot be preloaded into, where the kernel would execute it all the same.
fn obstacle(words: &[OsString]) -> Option<Obstacle> {
    let path = launch::find_program(&words[0]).ok()?;
    let found = program::look(&path, words, program::agent_library().as_deref()).err()?;
    program::is_the_kernels(found).then_some(found)
}

/// Figures that a backend does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing(u16);

/// What may be missing.
const MAY_BE_MISSING: [Statistic; 12] = [
    names::FIRST_TOUCHES,
    names::RESCUED,
    names::STORED,
    names::REFAULTS,
    names::PREFETCHED,
    names::UNMOVABLE,
    names::LOST,
    names::WAITED,
    names::FAULT_P50,
    names::FAULT_P99,
    names::FAULT_MAX,
    names::FOLLOWED_REFAULTS,
];

impl Missing {
    /// Whether nothing is.
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }

    /// With one more.
    #[must_use]
    pub fn and(self, statistic: Statistic) -> Missing {
        let at = MAY_BE_MISSING.iter().position(|known| *known == statistic);
        Missing(self.0 | at.map_or(0, |at| 1 << at))
    }

    /// Whether this one is.
    pub fn has(self, name: &str) -> bool {
        self.all().any(|statistic| statistic.name == name)
    }

    fn all(self) -> impl Iterator<Item = Statistic> {
        MAY_BE_MISSING.into_iter().enumerate().filter(move |(at, _)| self.0 & (1 << at) != 0).map(|(_, one)| one)
    }

    /// Their words.
    pub fn words(self) -> String {
        self.all().map(|statistic| statistic.word).collect::<Vec<_>>().join(", ")
    }

    /// Takes them out of an object.
    pub fn leave_out(self, json: &mut Value) {
        if let Some(object) = json.as_object_mut() {
            object.retain(|name, _| !self.has(name));
        }
    }
}

impl Serialize for Missing {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.all().map(|statistic| statistic.name))
    }
}

impl<'de> Deserialize<'de> for Missing {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Missing, D::Error> {
        let known = Vec::<String>::deserialize(from)?.into_iter().filter_map(|name| names::find(&name).copied());
        Ok(known.fold(Missing::default(), Missing::and))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_left_out_and_read_again() {
        let missing = Missing::default().and(names::WAITED).and(names::LOST);
        let mut json = serde_json::json!({"lost": 0, "waited_seconds": 0.0, "faults": 7});
        missing.leave_out(&mut json);
        assert_eq!(json, serde_json::json!({"faults": 7}));
        let written = serde_json::to_value(missing).expect("JSON");
        assert_eq!(written, serde_json::json!(["lost", "waited_seconds"]));
        assert_eq!(serde_json::from_value::<Missing>(written).expect("names"), missing);
        assert_eq!((missing.words().as_str(), missing.has("faults")), ("lost, waited", false));
    }

    #[test]
    fn auto_takes_the_pager_for_what_can_be_preloaded_into() {
        let own = std::env::current_exe().expect("a path").into_os_string();
        let places = Places::below("/nonexistent");
        let chosen = choose(std::slice::from_ref(&own), Wanted::Auto, false, &places);
        assert_eq!((chosen.backend, chosen.reason.as_str()), (Backend::Pager, ""));
        assert_eq!(choose(&[own], Wanted::Kernel, true, &places).backend, Backend::Kernel);
    }
}
