//! The program that is put under a budget: threads that write, check, discard, resize, move, lock, protect and fork.
//!
//! The operations of each thread follow from the seed alone; how threads interleave, and what is evicted meanwhile,
//! does not. A wrong word ends the program at once. Nothing that a system call reads or writes lies in managed memory
//! unless that is the point. So the program runs with faults served in the faulting thread too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use super::block::{Block, Damage, PAGES, Source};
use crate::random::{Random, mix};

/// Operations of each thread at least, however short its time: on a busy machine a turn could end before it began.
const MIN_OPERATIONS: u64 = 200;

/// What the driver passes on.
#[derive(Args, Debug, Clone)]
pub struct ChurnArgs {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    seconds: f64,
    /// Pages in all
    #[arg(long)]
    pages: usize,
    #[arg(long)]
    threads: u64,
}

/// What was done, over all threads.
#[derive(Default)]
struct Done {
    operations: AtomicU64,
    checks: AtomicU64,
    forks: AtomicU64,
}

/// Runs the threads, and says on standard output what they did.
pub fn run(args: &ChurnArgs) {
    let done = Done::default();
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    std::thread::scope(|scope| {
        for number in 0..args.threads {
            let done = &done;
            scope.spawn(move || Churner::new(args, number).run(end, done));
        }
    });
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (operations, checks, forks) = (load(&done.operations), load(&done.checks), load(&done.forks));
    println!("{}", serde_json::json!({"operations": operations, "checks": checks, "forks": forks}));
}

struct Churner<'a> {
    args: &'a ChurnArgs,
    number: u64,
    random: Random,
    serial: u64,
    blocks: Vec<Block>,
    checks: u64,
    forks: u64,
}

impl<'a> Churner<'a> {
    fn new(args: &'a ChurnArgs, number: u64) -> Churner<'a> {
        let random = Random::new(mix(args.seed ^ mix(number)));
        Churner { args, number, random, serial: number << 56, blocks: Vec::new(), checks: 0, forks: 0 }
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random() % bound as u64) as usize
    }

    /// No two writes of a run have the same one, so that older contents are told from newer ones.
    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn run(mut self, end: Instant, done: &Done) {
        let mut operations = 0;
        while operations < MIN_OPERATIONS || Instant::now() < end {
            self.operate();
            operations += 1;
        }
        done.operations.fetch_add(operations, Ordering::Relaxed);
        (0..self.blocks.len()).for_each(|block| self.check_all(block));
        done.checks.fetch_add(self.checks, Ordering::Relaxed);
        done.forks.fetch_add(self.forks, Ordering::Relaxed);
    }

    fn share(&self) -> usize {
        (self.args.pages / self.args.threads as usize).max(2 * PAGES.start())
    }

    fn operate(&mut self) {
        let held: usize = self.blocks.iter().map(Block::pages).sum();
        if self.blocks.is_empty() || (held < self.share() && self.blocks.len() < 24) {
            return self.add_block();
        }
        let block = self.below(self.blocks.len());
        let pages = self.blocks[block].pages();
        let first = self.below(pages);
        let count = 1 + self.below((pages - first).min(64));
        match self.below(1000) {
            0..300 => (first..first + count).for_each(|page| {
                let serial = self.serial();
                self.blocks[block].write(page, serial);
            }),
            300..500 => {
                let stamp = self.random() | 1;
                self.blocks[block].stamp(first, stamp);
            }
            500..850 => (first..first + count).for_each(|page| self.check(block, page)),
            850..900 => self.discard(block, first, count),
            900..930 => self.resize(block),
            930..940 => self.check_all(block),
            940..950 => drop(self.blocks.swap_remove(block)),
            950..975 => self.advise(block, first, count),
            975..985 => self.protect(block, first, count),
            985..993 => self.lock(block, first, count),
            993..998 => self.through_system_calls(block, first),
            _ => self.fork(block),
        }
    }

    fn some_pages(&mut self) -> usize {
        // Small blocks are the most frequent.
        let most = 1 << (6 + self.below(6));
        PAGES.start() + self.below(most)
    }

    fn add_block(&mut self) {
        let pages = self.some_pages();
        let source = if self.below(2) == 0 { Source::Mapped } else { Source::Allocated };
        let mut serial = self.serial;
        let block = Block::new(source, pages, &mut || {
            serial += 1;
            serial
        });
        self.serial = serial;
        self.blocks.push(block);
    }

    fn check(&mut self, block: usize, page: usize) {
        self.checks += 1;
        if let Err(damage) = self.blocks[block].check(page) {
            self.say(block, &damage);
        }
    }

    fn check_all(&mut self, block: usize) {
        (0..self.blocks[block].pages()).for_each(|page| self.check(block, page));
    }

    fn say(&self, block: usize, damage: &Damage) -> ! {
        let Damage { page, word, found, expected } = damage;
        eprintln!(
            "refault-stress: memory was lost: seed {}, thread {}, {:?} block of {} pages, page {page}, word {word}: \
             {found:#x} instead of {expected:#x}",
            self.args.seed,
            self.number,
            self.blocks[block].source,
            self.blocks[block].pages()
        );
        std::process::abort()
    }

    fn mapped(&self, block: usize) -> bool {
        self.blocks[block].source == Source::Mapped
    }

    fn discard(&mut self, block: usize, first: usize, count: usize) {
        if self.mapped(block) {
            self.blocks[block].discard(first, count);
            self.check(block, first);
        }
    }

    fn resize(&mut self, block: usize) {
        let pages = self.some_pages();
        let mut serial = self.serial;
        self.blocks[block].resize(pages, &mut || {
            serial += 1;
            serial
        });
        self.serial = serial;
        self.check(block, 0);
        self.check(block, self.blocks[block].pages() - 1);
    }

    fn advise(&mut self, block: usize, first: usize, count: usize) {
        // What is said of a part: the mapping stays one.
        const OF_PAGES: [i32; 3] = [libc::MADV_PAGEOUT, libc::MADV_WILLNEED, libc::MADV_COLD];
        // What the kernel notes of the mapping itself. Said of a part, it would make several mappings of the block,
        // which the kernel does not always join again, and does not resize.
        const OF_MAPPINGS: [i32; 5] =
            [libc::MADV_SEQUENTIAL, libc::MADV_RANDOM, libc::MADV_NORMAL, libc::MADV_DONTDUMP, libc::MADV_DODUMP];
        let which = self.below(OF_PAGES.len() + OF_MAPPINGS.len());
        if !self.mapped(block) {
            return;
        }
        match OF_PAGES.get(which) {
            Some(advice) => self.blocks[block].advise(first, count, *advice),
            None => {
                let pages = self.blocks[block].pages();
                self.blocks[block].advise(0, pages, OF_MAPPINGS[which - OF_PAGES.len()]);
            }
        }
        self.check(block, first + count - 1);
    }

    /// Takes the right to write away, checks, and gives it back.
    fn protect(&mut self, block: usize, first: usize, count: usize) {
        if !self.mapped(block) {
            return;
        }
        let set = |block: &Block, rights| {
            // SAFETY: pages of a block of this thread, which does not write meanwhile.
            let done = unsafe { libc::mprotect(block.address(first), count * super::block::PAGE, rights) };
            assert!(done == 0, "mprotect: {}", std::io::Error::last_os_error());
        };
        set(&self.blocks[block], libc::PROT_READ);
        (first..first + count).for_each(|page| self.check(block, page));
        set(&self.blocks[block], libc::PROT_READ | libc::PROT_WRITE);
    }

    /// Locks pages, if the budget allows, checks them and lets them go.
    fn lock(&mut self, block: usize, first: usize, count: usize) {
        if !self.mapped(block) {
            return;
        }
        let (address, len) = (self.blocks[block].address(first), count * super::block::PAGE);
        // SAFETY: pages of a block of this thread.
        if unsafe { libc::mlock(address, len) } == 0 {
            (first..first + count).for_each(|page| self.check(block, page));
            // SAFETY: as above.
            unsafe { libc::munlock(address, len) };
        }
    }

    /// A page goes through a pipe into another one.
    fn through_system_calls(&mut self, block: usize, page: usize) {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let address = self.blocks[block].address(page).cast::<u8>();
        // SAFETY: a page of a block of this thread.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address, super::block::PAGE) };
        assert_eq!(rustix::io::write(&writer, &*bytes), Ok(bytes.len()), "writing from managed memory");
        bytes.fill(0x55);
        let mut got = 0;
        while got < bytes.len() {
            got += rustix::io::read(&reader, &mut bytes[got..]).expect("reading into managed memory");
        }
        self.check(block, page);
    }

    /// The child has what was there at the fork, and what it writes is its own.
    fn fork(&mut self, block: usize) {
        self.forks += 1;
        // SAFETY: the child touches its memory and ends by _exit; the agent makes its memory its own.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            for other in 0..self.blocks.len() {
                let page = self.below(self.blocks[other].pages());
                self.check(other, page);
            }
            self.check_all(block);
            for page in 0..self.blocks[block].pages() {
                let serial = self.serial() | 1 << 55;
                self.blocks[block].write(page, serial);
            }
            self.add_block();
            self.check_all(block);
            // SAFETY: nothing is to be flushed.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        if waited != child || status != 0 {
            eprintln!("refault-stress: a forked child ended with status {status:#x}; seed {}", self.args.seed);
            std::process::abort();
        }
        self.check_all(block);
    }
}
