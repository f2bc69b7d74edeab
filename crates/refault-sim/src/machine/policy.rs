//! The machine's policy without its type.
//!
//! A fault, a pass of reclaim or a sample does much work per call of the policy. One virtual call is small beside it,
//! so the machine is compiled once for all policies. Only the loop of hits, which does little per access, is compiled
//! for each of them ([`task::run_hits`]).

use refault_core::policy::node;
use refault_core::policy::{
    BackgroundPass, DynPolicy, Enabled, EvictGenerations, GenerationCommands, GenerationDetails, GenerationError,
    NewGeneration, NodeReclaim, PassOutcome, Policy, ProactiveRequest, SwitchLists, generations,
};
use refault_core::{LruvecId, PageId};

use super::memory::MachineMemory;
use super::task::{self, Hits, Stop, Task};

/// What a machine asks of a policy beyond [`DynPolicy`]. Every policy is one; the methods are those of [`Policy`]'s
/// extensions, and what a policy does not have answers as said there.
pub(super) trait MachinePolicy: DynPolicy<MachineMemory> {
    /// [`task::run_hits`].
    fn run_hits(&mut self, task: &mut Task, memory: &mut MachineMemory, run: Hits) -> (u64, Stop);

    /// [`node::add_lruvec`].
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> Option<LruvecId>;
    /// [`node::reclaim_nodes`].
    fn reclaim_nodes(&mut self, roots: &[LruvecId], incoming: Option<PageId>, memory: &mut MachineMemory) -> u32;
    /// [`node::reclaim_proactively`].
    fn reclaim_proactively(&mut self, request: &ProactiveRequest, memory: &mut MachineMemory) -> u32;
    /// [`node::background_pass`].
    fn background_pass(&mut self, pass: &BackgroundPass, memory: &mut MachineMemory) -> PassOutcome;
    /// [`NodeReclaim::background_done`]; nothing for policies that know no nodes.
    fn background_done(&mut self, root: LruvecId, balanced: bool);
    /// [`NodeReclaim::write_finished`]; nothing for policies that know no nodes.
    fn write_finished(&mut self, page: PageId);
    /// [`node::is_workingset`].
    fn is_workingset(&mut self, page: PageId) -> bool;

    /// [`generations::generation_details`].
    fn generation_details(&self, lruvec: LruvecId) -> Vec<GenerationDetails>;
    /// [`GenerationCommands::new_generation`].
    ///
    /// # Errors
    /// See [`GenerationError`].
    fn new_generation(&mut self, request: &NewGeneration, memory: &mut MachineMemory) -> Result<(), GenerationError>;
    /// [`GenerationCommands::evict_generations`].
    ///
    /// # Errors
    /// See [`GenerationError`].
    fn evict_generations(
        &mut self,
        request: &EvictGenerations,
        memory: &mut MachineMemory,
    ) -> Result<u64, GenerationError>;

    /// Whether [`MachinePolicy::set_enabled`] does anything.
    fn switches_lists(&mut self) -> bool;
    /// [`SwitchLists::set_enabled`]; nothing for policies with one way only.
    fn set_enabled(&mut self, enabled: Enabled, memory: &mut MachineMemory);
}

impl<P: Policy> MachinePolicy for P {
    fn run_hits(&mut self, task: &mut Task, memory: &mut MachineMemory, run: Hits) -> (u64, Stop) {
        task::run_hits(self, task, memory, run)
    }

    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> Option<LruvecId> {
        node::add_lruvec(self, parent)
    }
    fn reclaim_nodes(&mut self, roots: &[LruvecId], incoming: Option<PageId>, memory: &mut MachineMemory) -> u32 {
        node::reclaim_nodes(self, roots, incoming, memory)
    }
    fn reclaim_proactively(&mut self, request: &ProactiveRequest, memory: &mut MachineMemory) -> u32 {
        node::reclaim_proactively(self, request, memory)
    }
    fn background_pass(&mut self, pass: &BackgroundPass, memory: &mut MachineMemory) -> PassOutcome {
        node::background_pass(self, pass, memory)
    }
    fn background_done(&mut self, root: LruvecId, balanced: bool) {
        if let Some(nodes) = self.nodes() {
            nodes.background_done(root, balanced);
        }
    }
    fn write_finished(&mut self, page: PageId) {
        if let Some(nodes) = self.nodes() {
            nodes.write_finished(page);
        }
    }
    fn is_workingset(&mut self, page: PageId) -> bool {
        node::is_workingset(self, page)
    }

    fn generation_details(&self, lruvec: LruvecId) -> Vec<GenerationDetails> {
        generations::generation_details(self, lruvec)
    }
    fn new_generation(&mut self, request: &NewGeneration, memory: &mut MachineMemory) -> Result<(), GenerationError> {
        self.generation_commands().ok_or(GenerationError::Unsupported)?.new_generation(request, memory)
    }
    fn evict_generations(
        &mut self,
        request: &EvictGenerations,
        memory: &mut MachineMemory,
    ) -> Result<u64, GenerationError> {
        self.generation_commands().ok_or(GenerationError::Unsupported)?.evict_generations(request, memory)
    }

    fn switches_lists(&mut self) -> bool {
        self.generation_commands().is_some_and(|commands| commands.switch_lists().is_some())
    }
    fn set_enabled(&mut self, enabled: Enabled, memory: &mut MachineMemory) {
        if let Some(lists) = self.generation_commands().and_then(|commands| commands.switch_lists()) {
            lists.set_enabled(enabled, memory);
        }
    }
}
