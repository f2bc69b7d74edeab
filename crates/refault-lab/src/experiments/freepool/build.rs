//! A build in a loop: parallel compile and link jobs over a source tree, again and again.
//!
//! The published machine built FreeBSD's world with `make -j7` on six processors; what each job touched is not
//! published. This is our model of it, with every size a share of memory, so that it scales:
//!
//! - sources and headers are files that every iteration reads again; small ones by `read()`, those of four pages and
//!   more through a mapping, as compilers do. Headers are chosen with a preference for few of them;
//! - a compiler, a linker and a shell are files that every job maps; a job touches the larger part of the compiler in
//!   order and comes back to parts of it;
//! - a compile job grows anonymous memory over its run, comes back to a third of it in every step and drops it at its
//!   end; sizes are exponentially distributed, and directories of large sources have larger ones;
//! - objects are written, read again by the directory's link job through mappings, and deleted when the next iteration
//!   begins;
//! - each job holds kernel memory (page tables, a stack) while it lives;
//! - idle programs hold a little anonymous memory, of which they seldom touch anything.
//!
//! Jobs start in the order of the directories, in as many slots as `make -j` gives; within a directory the order is
//! shuffled anew in each iteration, which is what makes iterations differ. The processors' time a job computes is an
//! input, set so that an iteration computes as long as the published one, times the scale.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use refault_core::frames::Frame;
use refault_core::monitor::Random;

use super::PUBLISHED_FRAMES;
use super::assumptions::Assumptions;
use super::machine::{Burst, Machine, Mapping, Nanos};
use super::page_daemon::PageDaemon;
use super::sample::{Sample, Sampler};
use super::store::Disk;
use refault_core::freebsd::VmCounters;

/// `make -j`.
const SLOTS: usize = 7;
/// Processors of the machine.
const PROCESSORS: usize = 6;
/// Builds.
pub(super) const ITERATIONS: usize = 7;
/// Jobs of one directory, its link job not counted.
const DIRECTORY: usize = 25;
/// One directory in this many has large sources.
const LARGE_DIRECTORIES: usize = 6;
/// How much larger their compile jobs' memory is.
const LARGE: f64 = 2.5;
/// Steps in which a job does its work.
const STEPS: u32 = 12;
/// Headers that a compile job reads in a step.
const HEADERS_PER_STEP: u64 = 6;
/// Seconds of user time of a published iteration.
const USER_SECONDS: f64 = 8250.0;

/// Sizes as shares of memory.
mod share {
    pub const HEADERS: f64 = 0.02;
    pub const OBJECTS: f64 = 0.50;
    pub const COMPILER: f64 = 0.016;
    pub const LINKER: f64 = 0.003;
    pub const SHELL: f64 = 0.001;
    pub const COMPILE_MEMORY: f64 = 0.022;
    pub const MAX_MEMORY: f64 = 0.11;
}

/// What one iteration took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Iteration {
    /// Simulated nanoseconds from start to end.
    pub elapsed: Nanos,
    pub user: Nanos,
    pub system: Nanos,
    pub counters: VmCounters,
    pub disk_reads: u64,
    pub disk_writes: u64,
    pub pages_read: u64,
    /// Evicted pages that were read again.
    pub refaults: u64,
    /// Pages that reclaim looked at.
    pub examined: u64,
    /// Time that tasks waited for the disk or for memory, added up.
    pub waited: Nanos,
}

impl Iteration {
    /// Read requests of the buffer cache: all but those of the pagers.
    pub fn buffered_reads(&self) -> u64 {
        self.disk_reads - self.counters.vnode_pageins - self.counters.swap_pageins
    }
}

/// What a run of all iterations came to.
pub(super) struct BuildRun {
    pub iterations: Vec<Iteration>,
    pub counters: VmCounters,
    pub samples: Vec<Sample>,
}

struct Directory {
    sources: Vec<Source>,
    objects: Vec<usize>,
    library: usize,
}

#[derive(Clone, Copy)]
struct Source {
    file: usize,
    /// What compiling it takes, memory and time: 1 on average, but for large directories' memory.
    memory: f64,
    time: f64,
}

enum Work {
    Compile { source: Source, object: usize },
    Link { directory: usize },
}

/// A job on a slot.
struct Job {
    work: Work,
    step: u32,
    shell: Mapping,
    tool: Mapping,
    memory: Mapping,
    /// Pages of memory it will have touched at its end, and has.
    size: u32,
    grown: u32,
    kernel: Vec<Frame>,
    compute: Nanos,
}

struct Build {
    assumptions: Assumptions,
    machine: Machine,
    random: Random,
    directories: Vec<Directory>,
    headers: Vec<usize>,
    compiler: usize,
    linker: usize,
    shell: usize,
    memories: Vec<usize>,
    idle: Mapping,
    pending: VecDeque<Work>,
    jobs: Vec<Option<Job>>,
    mean_memory: f64,
    most_memory: u32,
    compute: Nanos,
}

/// Runs the build in a loop on a machine of `frames` frames.
pub(super) fn run(
    frames: u32,
    policy: Box<dyn PageDaemon>,
    seed: u64,
    assumptions: &Assumptions,
    progress: &(dyn Fn(f64) + Sync),
) -> BuildRun {
    let mut build = Build::new(frames, policy, seed, assumptions);
    let mut sampler = Sampler::new((USER_SECONDS * 1e9 / PROCESSORS as f64 / 40.0) as Nanos);
    let mut iterations = Vec::new();
    let mut now = 0;
    for number in 0..ITERATIONS {
        let before = build.snapshot();
        let end = build.iterate(now, &mut sampler);
        let after = build.snapshot();
        iterations.push(Iteration {
            elapsed: end.at - now,
            user: end.user,
            system: end.system + after.daemon_time - before.daemon_time,
            counters: after.counters.since(&before.counters),
            disk_reads: after.disk.reads - before.disk.reads,
            disk_writes: after.disk.writes - before.disk.writes,
            pages_read: after.disk.pages_read - before.disk.pages_read,
            refaults: after.refaults - before.refaults,
            examined: after.examined - before.examined,
            waited: end.waited,
        });
        now = end.at;
        progress((number + 1) as f64 / ITERATIONS as f64);
    }
    BuildRun { iterations, counters: build.machine.counters(), samples: sampler.samples }
}

struct Snapshot {
    counters: VmCounters,
    disk: Disk,
    daemon_time: Nanos,
    refaults: u64,
    examined: u64,
}

impl Build {
    fn new(frames: u32, policy: Box<dyn PageDaemon>, seed: u64, assumptions: &Assumptions) -> Build {
        let mut machine = Machine::new(frames, policy, assumptions.daemon_lag);
        // The tree is the same for every seed of the iterations' order.
        let mut random = Random::new(0x5eed);
        let pages = |share: f64| ((f64::from(frames) * share) as u32).max(1);
        let jobs = ((12_000.0 * (f64::from(frames) / PUBLISHED_FRAMES).sqrt()) as usize / DIRECTORY).max(4) * DIRECTORY;
        let mean_source = f64::from(frames) * assumptions.sources / jobs as f64;
        let mean_object = f64::from(frames) * share::OBJECTS / 1.5 / jobs as f64;
        let file = |machine: &mut Machine, random: &mut Random, mean: f64| {
            machine.add_object((exponential(random, mean).ceil() as u32).max(1), false)
        };
        let directories = (0..jobs / DIRECTORY)
            .map(|number| {
                let large = number % LARGE_DIRECTORIES == LARGE_DIRECTORIES - 1;
                let sources = (0..DIRECTORY)
                    .map(|_| {
                        let time = 0.3 + exponential(&mut random, 0.7);
                        let memory = time * if large { LARGE } else { 1.0 };
                        Source { file: file(&mut machine, &mut random, mean_source), memory, time }
                    })
                    .collect();
                let objects: Vec<usize> =
                    (0..DIRECTORY).map(|_| file(&mut machine, &mut random, mean_object)).collect();
                // A library or program is half as large as what it is made of.
                let size: u32 = objects.iter().map(|object| machine.store.object(*object).pages).sum();
                let library = machine.add_object((size / 2).max(1), false);
                Directory { sources, objects, library }
            })
            .collect();
        let mut header_pages = pages(share::HEADERS);
        let mut headers = Vec::new();
        while header_pages > 0 {
            let size = (exponential(&mut random, 3.0).ceil() as u32).clamp(1, header_pages);
            headers.push(machine.add_object(size, false));
            header_pages -= size;
        }
        let most_memory = pages(share::MAX_MEMORY);
        let idle = machine.add_object(pages(assumptions.idle_programs), true);
        let mut idle = machine.map(idle, SLOTS as u8);
        let mut boot = Burst::default();
        (0..pages(assumptions.idle_programs)).for_each(|page| machine.touch(&mut idle, page, true, &mut boot));
        Build {
            assumptions: *assumptions,
            idle,
            compiler: machine.add_object(pages(share::COMPILER), false),
            linker: machine.add_object(pages(share::LINKER), false),
            shell: machine.add_object(pages(share::SHELL), false),
            memories: (0..SLOTS).map(|_| machine.add_object(most_memory, true)).collect(),
            random: Random::new(seed),
            directories,
            headers,
            machine,
            pending: VecDeque::new(),
            jobs: (0..SLOTS).map(|_| None).collect(),
            mean_memory: f64::from(frames) * share::COMPILE_MEMORY,
            most_memory,
            compute: (USER_SECONDS * 1e9 / jobs as f64) as Nanos,
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            counters: self.machine.counters(),
            disk: self.machine.store.disk,
            daemon_time: self.machine.daemon_time,
            refaults: self.machine.refaults(),
            examined: self.machine.policy.examined(),
        }
    }

    /// One build from `start` on. The burst says when it ended and what was computed.
    fn iterate(&mut self, start: Nanos, sampler: &mut Sampler) -> Burst {
        self.clean();
        self.queue_work();
        self.run_idle_programs(start);
        let mut total = Burst::starting(start);
        // What happens when: a slot can go on, or (None) a processor is free again.
        let mut events: BinaryHeap<Reverse<(Nanos, u64, Option<usize>)>> = BinaryHeap::new();
        let mut sequence = 0;
        let mut at_time = |events: &mut BinaryHeap<_>, time, what| {
            sequence += 1;
            events.push(Reverse((time, sequence, what)));
        };
        (0..SLOTS).for_each(|slot| at_time(&mut events, start, Some(slot)));
        let mut processors = PROCESSORS;
        let mut ready: VecDeque<usize> = VecDeque::new();
        while let Some(Reverse((now, _, what))) = events.pop() {
            self.machine.advance(now);
            sampler.sample(now, self.machine.store.frames.allocator(), self.machine.store.frames.cached());
            total.at = total.at.max(now);
            match what {
                Some(slot) => ready.push_back(slot),
                None => processors += 1,
            }
            while processors > 0
                && let Some(slot) = ready.pop_front()
            {
                let mut burst = Burst::starting(now);
                if !self.step(slot, &mut burst) {
                    continue;
                }
                processors -= 1;
                total.user += burst.user;
                total.system += burst.system;
                total.waited += burst.waited;
                at_time(&mut events, now + burst.user + burst.system, None);
                at_time(&mut events, burst.at, Some(slot));
            }
        }
        total
    }

    /// Deletes what the build before made.
    fn clean(&mut self) {
        for directory in &self.directories {
            directory.objects.iter().for_each(|object| self.machine.discard(*object));
            self.machine.discard(directory.library);
        }
    }

    fn run_idle_programs(&mut self, now: Nanos) {
        let pages = u64::from(self.machine.store.object(self.idle.object).pages);
        for _ in 0..pages / self.assumptions.idle_touches {
            let page = self.random.within(0, pages) as u32;
            self.machine.touch(&mut self.idle, page, true, &mut Burst::starting(now));
        }
    }

    fn queue_work(&mut self) {
        for (number, directory) in self.directories.iter().enumerate() {
            let mut order: Vec<usize> = (0..directory.sources.len()).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, self.random.within(0, last as u64 + 1) as usize);
            }
            self.pending.extend(
                order
                    .into_iter()
                    .map(|at| Work::Compile { source: directory.sources[at], object: directory.objects[at] }),
            );
            self.pending.push_back(Work::Link { directory: number });
        }
    }

    /// The next step of the slot's job, or the first of a new one. False if there is nothing left to do.
    fn step(&mut self, slot: usize, burst: &mut Burst) -> bool {
        let Some(mut job) = self.jobs[slot].take().or_else(|| self.start(slot, burst)) else { return false };
        match job.work {
            Work::Compile { source, object } => self.compile(&mut job, source.file, object, burst),
            Work::Link { directory } => self.link(&mut job, directory, burst),
        }
        job.step += 1;
        if job.step < STEPS {
            self.jobs[slot] = Some(job);
        } else {
            self.finish(slot, job);
        }
        true
    }

    fn start(&mut self, slot: usize, burst: &mut Burst) -> Option<Job> {
        let work = self.pending.pop_front()?;
        let task = slot as u8;
        let (tool, size, compute) = match work {
            Work::Compile { source, .. } => {
                (self.compiler, self.mean_memory * source.memory, self.compute as f64 * source.time)
            }
            Work::Link { directory } => {
                let library = self.machine.store.object(self.directories[directory].library).pages;
                (self.linker, f64::from(library), self.compute as f64)
            }
        };
        let size = (size as u32).clamp(STEPS, self.most_memory);
        let mut job = Job {
            work,
            step: 0,
            shell: self.machine.map(self.shell, task),
            tool: self.machine.map(tool, task),
            memory: self.machine.map(self.memories[slot], task),
            size,
            grown: 0,
            kernel: self.machine.allocate_kernel(16 + size / 256, burst),
            compute: compute as Nanos / u64::from(STEPS),
        };
        let shell = self.machine.store.object(self.shell).pages;
        (0..shell).for_each(|page| self.machine.touch(&mut job.shell, page, false, burst));
        // Start-up touches the larger part of the tool's text in order.
        let text = self.machine.store.object(tool).pages;
        (0..text * 3 / 5).for_each(|page| self.machine.touch(&mut job.tool, page, false, burst));
        Some(job)
    }

    fn compile(&mut self, job: &mut Job, source: usize, object: usize, burst: &mut Burst) {
        if job.step == 0 {
            self.read_file(source, job.memory.task(), burst);
        }
        for _ in 0..HEADERS_PER_STEP {
            let header = self.headers[skewed(&mut self.random, self.headers.len() as u64) as usize];
            self.read_file(header, job.memory.task(), burst);
        }
        self.run_tool(job, burst);
        if job.step == STEPS - 1 {
            let pages = self.machine.store.object(object).pages;
            self.machine.write(object, 0..pages, burst);
        }
    }

    fn link(&mut self, job: &mut Job, directory: usize, burst: &mut Burst) {
        let part = |step: u32| DIRECTORY * step as usize / STEPS as usize;
        for at in part(job.step)..part(job.step + 1) {
            self.read_file(self.directories[directory].objects[at], job.memory.task(), burst);
        }
        self.run_tool(job, burst);
        if job.step == STEPS - 1 {
            let library = self.directories[directory].library;
            let pages = self.machine.store.object(library).pages;
            self.machine.write(library, 0..pages, burst);
        }
    }

    /// Computes: comes back to a third of its memory and to parts of the tool's text, and grows.
    fn run_tool(&mut self, job: &mut Job, burst: &mut Burst) {
        let grown = (u64::from(job.size) * u64::from(job.step + 1) / u64::from(STEPS)) as u32;
        (job.grown..grown).for_each(|page| self.machine.touch(&mut job.memory, page, true, burst));
        job.grown = grown;
        for _ in 0..grown / 3 {
            let page = self.random.within(0, u64::from(grown)) as u32;
            self.machine.touch(&mut job.memory, page, page.is_multiple_of(2), burst);
        }
        let text = self.machine.store.object(job.tool.object).pages;
        for _ in 0..text / 8 {
            let page = skewed(&mut self.random, u64::from(text)) as u32;
            self.machine.touch(&mut job.tool, page, false, burst);
        }
        burst.compute(job.compute);
    }

    fn read_file(&mut self, object: usize, task: u8, burst: &mut Burst) {
        let pages = self.machine.store.object(object).pages;
        if pages < self.assumptions.mapped_from {
            return self.machine.read(object, 0..pages, burst);
        }
        let mut mapping = self.machine.map(object, task);
        (0..pages).for_each(|page| self.machine.touch(&mut mapping, page, false, burst));
        self.machine.unmap(mapping);
    }

    fn finish(&mut self, slot: usize, job: Job) {
        self.machine.unmap(job.shell);
        self.machine.unmap(job.tool);
        self.machine.unmap(job.memory);
        self.machine.discard(self.memories[slot]);
        self.machine.free_kernel(job.kernel);
    }
}

/// Exponentially distributed with this mean.
fn exponential(random: &mut Random, mean: f64) -> f64 {
    let uniform = (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
    -mean * (1.0 - uniform).ln()
}

/// Below `end`, with a preference for low numbers: half of the draws fall into the lowest eighth.
fn skewed(random: &mut Random, end: u64) -> u64 {
    let uniform = (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
    ((uniform * uniform * uniform) * end as f64) as u64
}
