//! Tasks: address spaces with a stream of accesses, and the path of a hit.
//!
//! A hit through a mapping is one load and one store in the mapping's page-table entries; a hit through a descriptor is
//! one load of the page's bits and, for the kernels' policies, one call of the policy. Everything else leaves the loop.

use refault_core::memory::readahead::{FileWindow, SwapWindow};
use refault_core::policy::{AccessReport, DescriptorReads, HitReport, Policy};
use refault_core::{Memory, PageId};
use refault_trace::{Entry, Kind, TraceError, TraceReader};

use super::config::{PhaseConfig, TaskConfig};
use super::fault::Wait;
use super::happenings::{Happened, Happening};
use super::latency::OperationLatency;
use super::memory::{MachineMemory, REGION_PAGES, entry, state};
use super::pressure::activity;
use super::{Event, File, LOOKAHEAD, Machine};

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Has not begun its first phase yet, or begins it anew.
    Starting,
    /// At work.
    Working,
    /// Killed; leaves when it is next on a CPU.
    Killed,
    /// Did all it had to do, or was killed for good.
    Over,
}

/// Accesses that are looked at ahead.
const FETCH_AHEAD: usize = 64;

/// What a task does when the CPU time of its current work is over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Afterwards {
    /// Goes on.
    Continue,
    /// Waits.
    Wait(Wait),
}

/// The file that the current phase reads, as this task has it open.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub first: PageId,
    pub pages: u32,
    /// The file's mapping in the task's address space, if it has one.
    pub mapping: usize,
    pub window: FileWindow,
    pub random: bool,
    /// Reading the page again that was read last says nothing.
    pub reads: DescriptorReads,
}

/// See the module.
pub(super) struct Task {
    pub group: usize,
    pub node: usize,
    pub address_space: usize,
    /// Mapping of the anonymous segment.
    pub anon_mapping: usize,
    pub anon_first: PageId,
    pub anon_pages: u32,
    /// Mapping of each file of the machine in this address space, or `usize::MAX`.
    file_mappings: Vec<usize>,
    pub life: Life,
    /// When it last had a CPU.
    pub last_run: u64,
    reader: Option<Box<dyn TraceReader>>,
    phase: usize,
    round: u64,
    raw: Vec<Entry>,
    pub block: Vec<Entry>,
    pub at: usize,
    /// What accesses below this index need was read ahead.
    fetched: usize,
    pub file: Option<OpenFile>,
    pub swap_window: SwapWindow,
    cpu_per_access: u64,
    write_state: u64,
    left_in_operation: u64,
    pub afterwards: Afterwards,
    /// Fruitless tries to get a page for the current access.
    pub tries: u32,
    /// Pages charged beyond `high` and not worked off yet.
    pub over_high: u64,
    pub accesses: u64,
    pub operations: u64,
    /// When the current operation began.
    begun: u64,
    /// An operation's last access was a miss, and is over when the task runs again.
    operation_over: bool,
    pub latency: OperationLatency,
    pub finished_at: Option<u64>,
    pub kills: u64,
    pub starts: u64,
    /// Time spent stalled for memory.
    pub stalled: u64,
    /// Time spent waiting for a device or for memory, the stalls included.
    pub waited: u64,
    pub major_faults: u64,
}

/// Why the loop of hits ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Ran as far ahead as it may.
    Ahead,
    /// The block is used up.
    Empty,
    /// The current access needs more than a hit can do.
    Miss,
    /// An operation ended and a pause follows.
    Pause,
}

/// How long a task may run through hits, and what its operations are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hits {
    /// The time at which it begins, in nanoseconds.
    from: u64,
    /// It stops at this time.
    until: u64,
    accesses_per_operation: u64,
    /// It pauses after each operation.
    pauses: bool,
}

impl Task {
    /// Makes the address space. None if there are too many pages.
    pub fn new(config: &TaskConfig, files: &[File], memory: &mut MachineMemory) -> Option<Task> {
        let address_space = memory.add_address_space(config.group);
        let segment = memory.add_segment(config.anon_pages, false)?;
        let anon_mapping = memory.add_mapping(address_space, segment, false);
        let anon_first = memory.segments[segment].first;
        let mut file_mappings = vec![usize::MAX; files.len()];
        for file in config.phases.iter().filter(|phase| phase.maps_file()).filter_map(|phase| phase.file) {
            if file_mappings[file] == usize::MAX {
                file_mappings[file] =
                    memory.add_mapping(address_space, files[file].segment, files[file].config.executable);
            }
        }
        Some(Task {
            group: config.group,
            node: config.node,
            address_space,
            anon_mapping,
            anon_first,
            anon_pages: config.anon_pages,
            file_mappings,
            life: Life::Starting,
            last_run: 0,
            reader: None,
            phase: 0,
            round: 0,
            raw: Vec::new(),
            block: Vec::new(),
            at: 0,
            fetched: 0,
            file: None,
            swap_window: SwapWindow::default(),
            cpu_per_access: config.cpu_per_access,
            write_state: 0x9E37_79B9_7F4A_7C15,
            left_in_operation: config.accesses_per_operation,
            afterwards: Afterwards::Continue,
            tries: 0,
            over_high: 0,
            accesses: 0,
            operations: 0,
            begun: 0,
            operation_over: false,
            latency: OperationLatency::default(),
            finished_at: None,
            kills: 0,
            starts: 0,
            stalled: 0,
            waited: 0,
            major_faults: 0,
        })
    }

    /// If a miss ended an operation, it ends now, and the next one begins. True if it did.
    fn end_operation(&mut self, at: u64) -> bool {
        let over = std::mem::take(&mut self.operation_over);
        if over {
            self.latency.record(at.saturating_sub(self.begun));
            self.begun = at;
        }
        over
    }

    /// Opens the file of a phase.
    fn open(&self, phase: &PhaseConfig, files: &[File]) -> Option<OpenFile> {
        let index = phase.file?;
        let file = &files[index];
        Some(OpenFile {
            first: file.first,
            pages: file.config.pages,
            mapping: self.file_mappings[index],
            window: FileWindow::default(),
            random: phase.random,
            reads: DescriptorReads::default(),
        })
    }

    /// Moves page numbers to where the phase's memory lies, and decides which descriptor accesses write.
    fn place(&mut self, phase: &PhaseConfig) -> Result<(), String> {
        self.block.clear();
        for entry in &self.raw {
            let kind = entry.kind().unwrap_or(Kind::Mapped);
            let page = entry.page() + u64::from(phase.offset);
            let (room, whose) = match (kind, &self.file) {
                (Kind::Anon, _) => (self.anon_pages, "the memory of the [[task]]"),
                (_, Some(file)) => (file.pages, "the [[file]]"),
                (_, None) => (0, "what it is accessed as, the workload's file,"),
            };
            if page >= u64::from(room) {
                return Err(format!("page {page} is accessed, but {whose} has {room} pages"));
            }
            let mut write = entry.write();
            if kind == Kind::Fd && phase.fd_write > 0 {
                self.write_state = self.write_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                write |= ((self.write_state >> 56) as u8) < phase.fd_write;
            }
            self.block.push(Entry::new(page, kind, write));
        }
        Ok(())
    }
}

impl Machine {
    /// A task goes on after its last work's CPU time, or after it slept.
    pub(super) fn run_task(&mut self, cpu: usize, id: usize) {
        let now = self.now;
        self.set_activity(id, now, activity::RUNNING);
        self.note_run(id);
        if self.tasks[id].life == Life::Killed {
            return self.leave(cpu, id, now);
        }
        if let Afterwards::Wait(wait) = std::mem::replace(&mut self.tasks[id].afterwards, Afterwards::Continue)
            && wait.until > now
        {
            return self.wait(cpu, id, now, wait);
        }
        if self.tasks[id].end_operation(now) && self.config.tasks[id].think > 0 {
            return self.think(cpu, id, now);
        }
        if self.yield_cpu(cpu, now) {
            return;
        }
        let mut until = now + LOOKAHEAD;
        if !self.run_queue.is_empty() {
            until = until.min(self.cpus[cpu].slice_end);
        }
        if let Some(end) = self.config.duration {
            until = until.min(end + 1);
        }
        let mut local = now;
        loop {
            match self.hits(id, &mut local, until) {
                Stop::Ahead => {
                    self.threads[id].cpu_time += local - now;
                    return self.at(local, Event::Cpu(cpu));
                }
                Stop::Pause => {
                    self.threads[id].cpu_time += local - now;
                    return self.think(cpu, id, local);
                }
                Stop::Empty => match self.refill(id) {
                    Ok(Refill::Ready) => {}
                    Ok(Refill::Pause(pause)) => {
                        self.tasks[id].begun = local + pause;
                        return self.sleep(cpu, local, local + pause, 0);
                    }
                    Ok(Refill::Over) => {
                        self.tasks[id].finished_at = Some(local);
                        let task = self.config.tasks[id].name.clone();
                        self.happened(local, Happened::Finished { task });
                        return self.leave(cpu, id, local);
                    }
                    Err(failure) => {
                        self.failure = Some(failure);
                        self.end = Some(super::End::Finished);
                        return;
                    }
                },
                Stop::Miss => {
                    // What allocates or waits happens in the order of time.
                    if local > self.next_event() {
                        self.threads[id].cpu_time += local - now;
                        return self.at(local, Event::Cpu(cpu));
                    }
                    self.now = local;
                    self.memory.now = local;
                    self.note_run(id);
                    let outcome = self.miss(id);
                    let done = local + outcome.stall + outcome.cpu;
                    if self.tasks[id].life == Life::Killed {
                        return self.leave(cpu, id, local);
                    }
                    self.threads[id].cpu_time += done - now;
                    if outcome.stall > 0 {
                        self.tasks[id].stalled += outcome.stall;
                        self.tasks[id].waited += outcome.stall;
                        self.set_activity(id, local, activity::RUNNING | activity::STALLED);
                        self.tasks[id].afterwards = outcome.wait.map_or(Afterwards::Continue, Afterwards::Wait);
                        return self.at(done, Event::Cpu(cpu));
                    }
                    if let Some(wait) = outcome.wait {
                        return self.wait(cpu, id, done, wait);
                    }
                    // The time so far is accounted; what follows is counted from here.
                    self.threads[id].cpu_time -= done - now;
                    local = done;
                    if self.tasks[id].end_operation(local) && self.config.tasks[id].think > 0 {
                        self.threads[id].cpu_time += local - now;
                        return self.think(cpu, id, local);
                    }
                }
            }
        }
    }

    /// An operation is over, by a hit or by a miss: the task pauses before the next one.
    fn think(&mut self, cpu: usize, id: usize, at: u64) {
        let until = at + self.config.tasks[id].think;
        self.tasks[id].begun = until;
        self.sleep(cpu, at, until, 0);
    }

    /// Page-table walks look at address spaces that ran since the last one.
    pub(super) fn note_run(&mut self, id: usize) {
        let space = self.tasks[id].address_space;
        self.memory.address_spaces[space].used = u64::MAX;
        self.tasks[id].last_run = self.now;
    }

    fn wait(&mut self, cpu: usize, id: usize, at: u64, wait: Wait) {
        let mut doing = activity::WAITING;
        if wait.until != u64::MAX {
            self.tasks[id].waited += wait.until.saturating_sub(at);
        }
        if wait.stalled {
            doing |= activity::STALLED;
            if wait.until != u64::MAX {
                self.tasks[id].stalled += wait.until.saturating_sub(at);
            }
        }
        self.sleep(cpu, at, wait.until, doing);
    }

    /// A task leaves: for good, or until it starts again.
    fn leave(&mut self, cpu: usize, id: usize, at: u64) {
        let killed = self.tasks[id].life == Life::Killed;
        self.release_task_memory(id);
        if killed && let Some(delay) = self.restart_delay(id) {
            let task = &mut self.tasks[id];
            (task.life, task.at, task.tries, task.afterwards) = (Life::Starting, 0, 0, Afterwards::Continue);
            task.block.clear();
            let space = self.tasks[id].address_space;
            self.memory.revive(space);
            return self.sleep(cpu, at, at + delay, 0);
        }
        self.tasks[id].life = Life::Over;
        self.living -= 1;
        self.sleep(cpu, at, u64::MAX, 0);
    }

    /// Runs through accesses that need nothing but bits set.
    fn hits(&mut self, id: usize, local: &mut u64, until: u64) -> Stop {
        let config = &self.config.tasks[id];
        let run = Hits {
            from: *local,
            until,
            accesses_per_operation: config.accesses_per_operation,
            pauses: config.think > 0,
        };
        let (time, stop) = self.policy.run_hits(&mut self.tasks[id], &mut self.memory, run);
        *local = time;
        stop
    }

    /// The current access is done: by a fault, not by a hit.
    pub(super) fn finish_access(&mut self, id: usize) -> u64 {
        let operation = self.config.tasks[id].accesses_per_operation;
        let task = &mut self.tasks[id];
        task.at += 1;
        task.accesses += 1;
        task.tries = 0;
        task.left_in_operation -= 1;
        if task.left_in_operation == 0 {
            task.left_in_operation = operation;
            task.operations += 1;
            task.operation_over = true;
        }
        task.cpu_per_access
    }

    /// The next block of accesses, from this phase or the next.
    fn refill(&mut self, id: usize) -> Result<Refill, TraceError> {
        let config = &self.config.tasks[id];
        let task = &mut self.tasks[id];
        loop {
            if task.life == Life::Starting {
                task.life = Life::Working;
                task.starts += 1;
                (task.begun, task.operation_over) = (self.now, false);
                let what = Happened::Started { task: config.name.clone(), start: task.starts };
                self.happenings.push(Happening { at: self.now, what });
                (task.phase, task.round, task.reader) = (0, 0, None);
            } else if task.reader.is_some() {
                let reader = task.reader.as_mut().expect("invariant: just tested");
                (task.at, task.fetched) = (0, 0);
                if reader.read_block(&mut task.raw)? > 0 {
                    let phase = &config.phases[task.phase];
                    task.place(phase).map_err(|reason| TraceError::Workload {
                        spec: phase.workload.name(),
                        reason: format!("task {}: {reason}", config.name),
                    })?;
                    return Ok(Refill::Ready);
                }
                task.block.clear();
                task.reader = None;
                task.phase += 1;
                if task.phase == config.phases.len() {
                    task.phase = 0;
                    task.round += 1;
                }
            }
            if task.round >= config.rounds || config.phases.is_empty() {
                return Ok(Refill::Over);
            }
            let phase = &config.phases[task.phase];
            task.reader = Some(phase.workload.open()?);
            task.file = task.open(phase, &self.files);
            // What is said of a mapping concerns kernels; other policies count hits in ways of their own.
            if let Some(file) = task.file.as_ref().filter(|_| phase.maps_file() && self.hit_report == HitReport::Kernel)
            {
                self.memory.mappings[file.mapping].recency = !phase.random;
            }
            task.cpu_per_access = phase.cpu_per_access.unwrap_or(config.cpu_per_access);
            if phase.pause > 0 {
                return Ok(Refill::Pause(phase.pause));
            }
        }
    }
}

/// Runs through accesses that need nothing but bits set. The one part of a machine that is compiled for its policy.
/// Returns when it stopped, and why.
pub(super) fn run_hits<P: Policy>(
    policy: &mut P,
    task: &mut Task,
    memory: &mut MachineMemory,
    run: Hits,
) -> (u64, Stop) {
    let read_hit = memory.costs.read_hit;
    let mark_accessed = if P::HITS == HitReport::Kernel { memory.costs.mark_accessed } else { 0 };
    let (anon, anon_first) = (task.anon_mapping, task.anon_first);
    let (file_first, file_mapping, mut reads) = task
        .file
        .as_ref()
        .map_or((0, usize::MAX, DescriptorReads::default()), |file| (file.first, file.mapping, file.reads));
    let mut time = run.from;
    let mut at = task.at;
    // Where the file was read last, which readahead goes on from.
    let mut last_read = None;
    let stop = loop {
        if time >= run.until {
            break Stop::Ahead;
        }
        let Some(&access) = task.block.get(at) else { break Stop::Empty };
        if at >= task.fetched {
            task.fetched = task.block.len().min(at + FETCH_AHEAD);
            let tables = [(anon, anon_first), (file_mapping, file_first)];
            fetch(&task.block[at..task.fetched], tables, memory, policy);
        }
        let offset = access.page() as usize;
        time += task.cpu_per_access;
        if access.kind() == Some(Kind::Fd) {
            let page = file_first + offset as PageId;
            let wanted = state::RESIDENT | if access.write() { state::DIRTY } else { 0 };
            let bits = memory.state[page as usize];
            if bits & (wanted | state::LOCKED | state::MARKER) != wanted {
                time -= task.cpu_per_access;
                break Stop::Miss;
            }
            time += read_hit;
            last_read = Some(offset as u64);
            match reads.report(P::HITS, page, access.write(), true) {
                AccessReport::Tell => {
                    time += mark_accessed;
                    policy.accessed(page, memory);
                }
                AccessReport::SetBit => memory.state[page as usize] = bits | state::TOUCHED,
                AccessReport::Nothing => {}
            }
        } else {
            let (mapping, first) =
                if access.kind() == Some(Kind::Anon) { (anon, anon_first) } else { (file_mapping, file_first) };
            let wanted = entry::PRESENT | if access.write() { entry::WRITABLE } else { 0 };
            let table = &mut memory.mappings[mapping];
            let bits = table.entries[offset];
            if bits & wanted != wanted {
                time -= task.cpu_per_access;
                break Stop::Miss;
            }
            table.entries[offset] = bits | entry::YOUNG;
            table.regions[offset / REGION_PAGES] = true;
            if P::HITS == HitReport::EachAccess {
                policy.accessed(first + offset as PageId, memory);
            }
        }
        at += 1;
        task.left_in_operation -= 1;
        if task.left_in_operation == 0 {
            task.left_in_operation = run.accesses_per_operation;
            task.operations += 1;
            task.latency.record(time.saturating_sub(task.begun));
            task.begun = time;
            if run.pauses {
                break Stop::Pause;
            }
        }
    };
    if let Some(file) = &mut task.file {
        file.reads = reads;
        if let Some(offset) = last_read {
            file.window.hit(offset);
        }
    }
    task.accesses += (at - task.at) as u64;
    task.at = at;
    (time, stop)
}

/// Reads what the next accesses of a task will need, so that their cache misses overlap instead of following one
/// another. `tables` are mapping and first page of its anonymous memory and of its file.
#[inline]
fn fetch<P: Policy>(next: &[Entry], tables: [(usize, PageId); 2], memory: &MachineMemory, policy: &P) {
    let (mut read, mut faults) = (0, 0u64);
    let place = |access: &Entry| {
        let (mapping, first) = tables[usize::from(access.kind() != Some(Kind::Anon))];
        (mapping, access.page() as usize, first + access.page() as PageId)
    };
    // Two passes, because a branch that waits for the first load would keep the next ones from starting.
    for (bit, access) in next.iter().enumerate() {
        let (mapping, offset, page) = place(access);
        let present = if access.kind() == Some(Kind::Fd) {
            read ^= policy.prefetch_hint(page);
            memory.state[page as usize] & state::RESIDENT != 0
        } else {
            memory.mappings[mapping].entries[offset] & entry::PRESENT != 0
        };
        faults |= u64::from(!present) << bit;
    }
    while faults != 0 {
        let (_, _, page) = place(&next[faults.trailing_zeros() as usize]);
        read ^= memory.prefetch_hint(page) ^ policy.prefetch_hint(page);
        faults &= faults - 1;
    }
    std::hint::black_box(read);
}

/// What came of asking for more accesses.
enum Refill {
    Ready,
    /// A new phase begins after a pause.
    Pause(u64),
    Over,
}
