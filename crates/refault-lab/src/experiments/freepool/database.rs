//! A read-only database three times as large as memory, with a quarter of memory as its own buffers.
//!
//! Each transaction looks one row up by its key, keys being equally likely: an index leaf and a block of the table,
//! both two pages, through the database's buffers (a clock sweep over usage counts up to five). A block that is not
//! there is read from the file by `read()`. The inner pages of the index always are. The index is a seventh of the
//! database.

use refault_core::freebsd::VmCounters;
use refault_core::monitor::Random;

use super::PUBLISHED_FRAMES;
use super::assumptions::Assumptions;
use super::machine::{Burst, Machine, Nanos};
use super::page_daemon::PageDaemon;
use super::sample::{Sample, Sampler};

/// Database over memory.
const DATABASE: f64 = 3.0;
/// Part of the database that is index.
const INDEX: u64 = 7;
/// Pages of a block.
const BLOCK: u32 = 2;
/// Largest usage count.
const MAX_USAGE: u8 = 5;
/// Frames that are left when free memory falls.
const RESERVE: u32 = 8;
/// What a transaction computes, in nanoseconds.
const COMPUTE: f64 = 60_000.0;

/// What the workload came to after memory had filled.
pub(super) struct DatabaseRun {
    pub counters: VmCounters,
    pub pages_read: u64,
    pub refaults: u64,
    /// Pages that reclaim looked at.
    pub examined: u64,
    /// Simulated time, and the part of it that transactions waited for the disk or for memory.
    pub elapsed: Nanos,
    pub waited: Nanos,
    pub samples: Vec<Sample>,
}

/// Runs the workload.
pub(super) fn run(
    frames: u32,
    policy: Box<dyn PageDaemon>,
    seed: u64,
    assumptions: &Assumptions,
    progress: &(dyn Fn(f64) + Sync),
) -> DatabaseRun {
    let Assumptions {
        buffers,
        backends: processes,
        transactions,
        read_ahead,
        memory_fell,
        memory_returns,
        daemon_lag,
        ..
    } = *assumptions;
    let mut machine = Machine::new(frames, policy, daemon_lag);
    let mut random = Random::new(seed);
    let pages = |share: f64| (f64::from(frames) * share) as u32 / BLOCK * BLOCK;
    let file = machine.add_object(pages(DATABASE), false);
    // The database holds its files open.
    machine.store.object_mut(file).users += 1;
    let memory = machine.add_object(pages(buffers), true);
    let mut backends: Vec<_> = (0..processes).map(|task| machine.map(memory, task as u8)).collect();
    let blocks = u64::from(pages(DATABASE) / BLOCK);
    let mut buffers = Buffers::new((pages(buffers) / BLOCK) as usize, blocks as usize);

    let total = transactions * u64::from(frames);
    // A transaction stands for as many as a page does.
    let compute = (COMPUTE * PUBLISHED_FRAMES / f64::from(frames)) as u64;
    let mut warm = DatabaseRun::so_far(&machine, &Burst::default());
    let mut sampler = Sampler::new((COMPUTE * PUBLISHED_FRAMES * transactions as f64 / 100.0) as Nanos);
    let mut burst = Burst::default();
    let mut held = Vec::new();
    for transaction in 0..total {
        if memory_fell && transaction == total / 20 {
            held = machine.allocate_kernel(machine.policy.available() as u32 - RESERVE, &mut burst);
        }
        if memory_returns && transaction > total / 10 && !held.is_empty() {
            let any = random.within(0, held.len() as u64) as usize;
            machine.free_kernel(vec![held.swap_remove(any)]);
        }
        if transaction == total / 5 {
            warm = DatabaseRun::so_far(&machine, &burst);
            sampler.samples.clear();
        }
        if transaction % (total / 100).max(1) == 0 {
            progress(transaction as f64 / total as f64);
        }
        machine.advance(burst.at);
        sampler.sample(burst.at, machine.store.frames.allocator(), machine.store.frames.cached());
        let backend = &mut backends[(transaction % processes) as usize];
        let leaf = random.within(0, blocks / INDEX);
        let row = random.within(blocks / INDEX, blocks);
        for block in [leaf, row] {
            let (buffer, present) = buffers.find(block as u32);
            if !present {
                let end = ((block as u32 + 1) * BLOCK + read_ahead).min(pages(DATABASE));
                machine.read(file, block as u32 * BLOCK..end, &mut burst);
            }
            for page in 0..BLOCK {
                machine.touch(backend, buffer * BLOCK + page, !present, &mut burst);
            }
        }
        burst.compute(compute);
    }
    let all = DatabaseRun::so_far(&machine, &burst);
    DatabaseRun {
        counters: all.counters.since(&warm.counters),
        pages_read: all.pages_read - warm.pages_read,
        refaults: all.refaults - warm.refaults,
        examined: all.examined - warm.examined,
        elapsed: all.elapsed - warm.elapsed,
        waited: all.waited - warm.waited,
        samples: sampler.samples,
    }
}

impl DatabaseRun {
    fn so_far(machine: &Machine, burst: &Burst) -> DatabaseRun {
        DatabaseRun {
            counters: machine.counters(),
            pages_read: machine.store.disk.pages_read,
            refaults: machine.refaults(),
            examined: machine.policy.examined(),
            elapsed: burst.at,
            waited: burst.waited,
            samples: Vec::new(),
        }
    }
}

/// The database's own buffers.
struct Buffers {
    block_of: Vec<u32>,
    usage: Vec<u8>,
    buffer_of: Vec<u32>,
    hand: usize,
}

const NOTHING: u32 = u32::MAX;

impl Buffers {
    fn new(buffers: usize, blocks: usize) -> Buffers {
        Buffers { block_of: vec![NOTHING; buffers], usage: vec![0; buffers], buffer_of: vec![NOTHING; blocks], hand: 0 }
    }

    /// The buffer of a block, and whether the block was in it already.
    fn find(&mut self, block: u32) -> (u32, bool) {
        let buffer = self.buffer_of[block as usize];
        if buffer != NOTHING {
            let usage = &mut self.usage[buffer as usize];
            *usage = (*usage + 1).min(MAX_USAGE);
            return (buffer, true);
        }
        while self.usage[self.hand] > 0 {
            self.usage[self.hand] -= 1;
            self.hand = (self.hand + 1) % self.usage.len();
        }
        let buffer = self.hand;
        self.hand = (self.hand + 1) % self.usage.len();
        let old = std::mem::replace(&mut self.block_of[buffer], block);
        if old != NOTHING {
            self.buffer_of[old as usize] = NOTHING;
        }
        self.buffer_of[block as usize] = buffer as u32;
        self.usage[buffer] = 1;
        (buffer as u32, false)
    }
}
