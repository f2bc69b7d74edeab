//! The blocks of all jobs as accesses: one block of each job in turn.

use super::{FioJobs, PAGE, blocks::Blocks};
use crate::{Entry, Kind};

/// Where the jobs are.
pub(crate) struct FioReader {
    jobs: Vec<(Blocks, u64)>,
    turn: usize,
    /// What is left of the block that was begun.
    page: u64,
    left: u64,
    block_size: u64,
    offset: u64,
    write: bool,
    kind: Kind,
}

impl FioReader {
    /// All jobs at their beginning; the first is fio's thread of that number.
    pub(crate) fn new(options: &FioJobs, thread: u64, kind: Kind) -> FioReader {
        let jobs = options.jobs().enumerate().map(|(place, job)| {
            let first_page = if options.filename.is_empty() { place as u64 * options.file_pages() } else { 0 };
            (options.blocks(job, thread), first_page)
        });
        FioReader {
            jobs: jobs.collect(),
            turn: 0,
            page: 0,
            left: 0,
            block_size: options.block_size,
            offset: options.offset,
            write: options.direction.writes(),
            kind,
        }
    }

    /// Appends the next `count` accesses.
    pub(crate) fn fill(&mut self, count: usize, out: &mut Vec<Entry>) {
        for _ in 0..count {
            if self.left == 0 {
                let (blocks, first_page) = &mut self.jobs[self.turn];
                self.page = *first_page + (self.offset + blocks.next() * self.block_size) / PAGE;
                self.left = (self.block_size / PAGE).max(1);
                self.turn = if self.turn + 1 == self.jobs.len() { 0 } else { self.turn + 1 };
            }
            out.push(Entry::new(self.page, self.kind, self.write));
            self.page += 1;
            self.left -= 1;
        }
    }
}
