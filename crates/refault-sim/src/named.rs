//! Replays and machines whose policy is known by name only.
//!
//! A replay is compiled for its policy, which makes it fast and large. Here this is done once for each policy of the
//! registry, so that whatever asks for a policy by name shares the code; who knows the policy's type uses [`Replay`]
//! itself. The type is forgotten around whole blocks of accesses: cost, one virtual call each. A [`Machine`] has
//! forgotten it already.
//!
//! ```
//! use refault_core::policy::PolicySpec;
//! use refault_core::policy::registry::BuildContext;
//! use refault_sim::flat_memory::Swap;
//! use refault_sim::{LayoutBuilder, Limits, named};
//! use refault_trace::{Entry, Kind};
//!
//! let entries: Vec<Entry> = [1, 2, 3, 1].into_iter().map(|page| Entry::new(page, Kind::Anon, false)).collect();
//! let mut builder = LayoutBuilder::new();
//! builder.observe(&entries);
//! let layout = builder.finish()?;
//! let limits = Limits { memory_pages: 2, swap: Swap { pages: 100, synchronous: true } };
//! let mut replay = named::replay(&PolicySpec::parse("lru")?, &BuildContext::default(), &layout, limits);
//! let mut accesses = Vec::new();
//! layout.translate(&entries, &mut accesses);
//! replay.run(&accesses);
//! assert_eq!(replay.outcome().misses, 4); // page 1 was evicted for page 3
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use refault_core::Policy;
use refault_core::policy::registry::{BuildContext, Visitor, visit};
use refault_core::policy::{DynPolicy, GenerationSize, PolicySpec, SortRule};
use refault_core::switching::Switching;
use refault_core::{LruvecId, PageId};

use crate::flat_memory::FlatMemory;
use crate::layout::{Access, Layout};
use crate::machine::Machine;
use crate::machine::commands::Command;
use crate::machine::config::MachineConfig;
use crate::replay::{Limits, Outcome, Replay};

/// What can be asked of a replay's policy beside replaying; the methods are those of [`DynPolicy`]. Its other methods
/// are not here on purpose: reclaim would be compiled a second time for each policy, and inlined into the replay no
/// more.
pub trait ReplayedPolicy {
    /// [`DynPolicy::freed`].
    fn freed(&mut self, page: PageId);
    /// [`DynPolicy::metadata_bytes`].
    fn metadata_bytes(&self) -> usize;
    /// [`DynPolicy::sorts`].
    fn sorts(&mut self) -> bool;
    /// [`DynPolicy::sort`].
    fn sort(&mut self, page: PageId, hot: bool, rule: SortRule, memory: &mut FlatMemory);
    /// [`DynPolicy::generations`].
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize>;
    /// [`DynPolicy::active_inactive`].
    fn active_inactive(&self) -> Option<[u64; 2]>;
    /// [`DynPolicy::page_out`].
    fn page_out(&mut self, page: PageId, memory: &mut FlatMemory) -> bool;
    /// [`DynPolicy::leader`].
    fn leader(&self) -> Option<&'static str>;
}

impl<P: Policy> ReplayedPolicy for P {
    fn freed(&mut self, page: PageId) {
        Policy::freed(self, page);
    }

    fn metadata_bytes(&self) -> usize {
        Policy::metadata_bytes(self)
    }

    fn sorts(&mut self) -> bool {
        DynPolicy::<FlatMemory>::sorts(self)
    }

    fn sort(&mut self, page: PageId, hot: bool, rule: SortRule, memory: &mut FlatMemory) {
        DynPolicy::sort(self, page, hot, rule, memory);
    }

    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        DynPolicy::<FlatMemory>::generations(self, lruvec)
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        DynPolicy::<FlatMemory>::active_inactive(self)
    }

    fn page_out(&mut self, page: PageId, memory: &mut FlatMemory) -> bool {
        DynPolicy::page_out(self, page, memory)
    }

    fn leader(&self) -> Option<&'static str> {
        DynPolicy::<FlatMemory>::leader(self)
    }
}

/// A replay without its policy's type; the methods are those of [`Replay`].
pub trait DynReplay: Send {
    /// [`Replay::run`].
    fn run(&mut self, block: &[Access]);
    /// [`Replay::run_weighed`].
    fn run_weighed(&mut self, block: &[Access], bytes: &[u64]) -> u64;
    /// [`Replay::read_ahead`].
    fn read_ahead(&mut self, layout: &Layout, window: u32);
    /// [`Replay::outcome`].
    fn outcome(&self) -> Outcome;
    /// [`Replay::policy`].
    fn policy(&self) -> &dyn ReplayedPolicy;
    /// [`Replay::memory`].
    fn memory(&self) -> &FlatMemory;
    /// Both, for a monitor whose schemes act on them.
    fn parts_mut(&mut self) -> (&mut dyn ReplayedPolicy, &mut FlatMemory);
}

impl<P: Policy + Send + 'static> DynReplay for Replay<P> {
    fn run(&mut self, block: &[Access]) {
        Replay::run(self, block);
    }

    fn run_weighed(&mut self, block: &[Access], bytes: &[u64]) -> u64 {
        Replay::run_weighed(self, block, bytes)
    }

    fn read_ahead(&mut self, layout: &Layout, window: u32) {
        Replay::read_ahead(self, layout, window);
    }

    fn outcome(&self) -> Outcome {
        Replay::outcome(self)
    }

    fn policy(&self) -> &dyn ReplayedPolicy {
        let policy: &P = Replay::policy(self);
        policy
    }

    fn memory(&self) -> &FlatMemory {
        Replay::memory(self)
    }

    fn parts_mut(&mut self) -> (&mut dyn ReplayedPolicy, &mut FlatMemory) {
        let (policy, memory) = Replay::parts_mut(self);
        (policy, memory)
    }
}

/// Empty memory with the policy of a specification over it.
///
/// # Panics
/// If the policy needs the future and the context does not have it.
pub fn replay(spec: &PolicySpec, context: &BuildContext, layout: &Layout, limits: Limits) -> Box<dyn DynReplay> {
    visit(spec, context, StartReplay { layout, limits })
}

/// A machine at time 0 under the policy of a specification; if an event writes to `lru_gen/enabled`, under both
/// kernels' lists, the specified ones in force at first.
///
/// # Errors
/// As [`Machine::new`].
///
/// # Panics
/// If the policy needs the future: ask [`PolicySpec::check`] before.
pub fn machine(spec: &PolicySpec, config: MachineConfig) -> Result<Machine, String> {
    let switches = config.events.iter().any(|(_, command)| matches!(command, Command::Enabled(_)));
    if let Some(lists) = Switching::of(spec).filter(|_| switches) {
        return StartMachine { config }.visit(lists);
    }
    visit(spec, &BuildContext::default(), StartMachine { config })
}

struct StartReplay<'a> {
    layout: &'a Layout,
    limits: Limits,
}

impl Visitor for StartReplay<'_> {
    type Output = Box<dyn DynReplay>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Box<dyn DynReplay> {
        Box::new(Replay::new(self.layout, policy, self.limits))
    }
}

struct StartMachine {
    config: MachineConfig,
}

impl Visitor for StartMachine {
    type Output = Result<Machine, String>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Result<Machine, String> {
        Machine::new(self.config, policy)
    }
}
