//! The list of published experiments. [`EXPERIMENTS`] is the one place: adding an experiment is one entry, and every
//! front-end has it.
//!
//! ```
//! use refault_lab::experiments::published;
//!
//! assert_eq!(published::find("freepool")?.name, "freepool");
//! assert!(published::find("freepol").is_err());
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use super::{Options, Progress, Size};
use super::{freepool, lru_sort, mglru_fio, mglru_refault, mglru_v1, shadow_lru};
use crate::error::LabError;
use crate::experiment::Experiment;

/// How an experiment is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// How large.
    pub size: Size,
    /// Put the null in the place of ours.
    pub null: bool,
    /// The first seed of all random choices.
    pub seed: u64,
}

impl Request {
    fn options(&self) -> Options {
        Options { null: self.null, ..Options::new(self.size, self.seed) }
    }
}

/// An experiment that can be asked for by name.
pub struct Published {
    /// What it is called.
    pub name: &'static str,
    /// One line: where and when it was published, and what is seen.
    pub about: &'static str,
    run: fn(&Request, Progress) -> Result<Experiment, LabError>,
}

impl Published {
    /// Runs it; `progress` is told the share that is done, from 0 to 1.
    ///
    /// # Errors
    /// It cannot be run, which is a defect of ours.
    pub fn run(&self, request: &Request, progress: Progress) -> Result<Experiment, LabError> {
        (self.run)(request, progress)
    }
}

/// The experiment of a name.
///
/// # Errors
/// There is none of this name; the sentence lists them.
pub fn find(name: &str) -> Result<&'static Published, LabError> {
    EXPERIMENTS.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<_> = EXPERIMENTS.iter().map(|entry| entry.name).collect();
        LabError::request("unknown experiment", format!("'{name}'"), format!("choose from {}", known.join(", ")))
    })
}

/// All of them.
pub const EXPERIMENTS: &[Published] = &[
    Published {
        name: "shadow-lru",
        about: "Linux 2023: refault distances on a clock of evictions alone, for the classic lists; five workloads",
        run: |request, progress| machine_experiment(shadow_lru::run(&request.options(), progress)),
    },
    Published {
        name: "mglru-refault",
        about: "Linux 2023: the same distances protect file pages under the multi-gen LRU; four policies",
        run: |request, progress| machine_experiment(mglru_refault::run(&request.options(), progress)),
    },
    Published {
        name: "mglru-fio",
        about: "Linux 2021: random reads under the classic lists and the multi-gen LRU, as shares of reclaim's work",
        run: |request, progress| machine_experiment(mglru_fio::run(&request.options(), progress)),
    },
    Published {
        name: "mglru-v1",
        about: "Linux 2021: browser tabs and a server under anonymous memory; CPU, pressure, latency, refaults, kills",
        run: |request, progress| machine_experiment(mglru_v1::run(&request.options(), progress)),
    },
    Published {
        name: "freepool",
        about: "FreeBSD 2015: evicted pages lose their own free pool; fewer are reactivated, free blocks are larger",
        run: |request, progress| {
            let options = match request.size {
                Size::Small => freepool::Options::small(),
                Size::Quick => freepool::Options::default(),
                Size::Full => freepool::Options::full(),
            };
            Ok(freepool::run(&freepool::Options { seed: request.seed, null: request.null, ..options }, progress))
        },
    },
    Published {
        name: "lru-sort",
        about: "Linux 2022: a monitor finds hot and cold memory and sorts the LRU lists before pressure comes",
        run: |request, progress| {
            let options = match request.size {
                Size::Small => lru_sort::Options::small(request.seed),
                Size::Quick => lru_sort::Options::quick(request.seed),
                Size::Full => lru_sort::Options::full(request.seed),
            };
            lru_sort::run(&lru_sort::Options { null: request.null, ..options }, progress)
                .map_err(|error| LabError::failed("lru-sort", error.to_string(), "report it: the schemes are built in"))
        },
    },
];

fn machine_experiment(result: Result<Experiment, String>) -> Result<Experiment, LabError> {
    result.map_err(|reason| LabError::failed("experiment", reason, "this is a defect of refault: please report it"))
}
