//! Which frames pages have that come in together.
//!
//! A device reads faster into few pieces of memory: of this kind of disk 0.9 GB/s were seen into frames that lie
//! scattered and 2.5 into huge pages. The policy takes pages one by one, in an order that need not be that of their
//! frames, and from among pages that stay. So pages that are to be read together exchange frames, and where these still
//! lie scattered, others are moved out of their way. What came in together goes at about the same time as a rule, so
//! its frames still lie together when the next window gets them.
//!
//! Invariant: a page is moved only if no thread reads or writes its frame ([`crate::engine::pages::Pages::relocate`]).
//! Cost: a sort per window, and at most [`MAX_MOVED`] copies of a page.

use refault_core::PageId;
use refault_core::frames::Frame;

use super::Engine;
use crate::engine::buffers::FRAMES_PER_HUGE_PAGE;

const BLOCK: Frame = FRAMES_PER_HUGE_PAGE as Frame;

/// Pages per piece from which on no others are moved: pieces of 64 KiB.
const MIN_PER_PIECE: usize = 16;

/// Pages that are moved in one hold of the lock: some 40 µs.
const MAX_MOVED: usize = 64;

impl Engine {
    /// Pages that are to be filled, in the order of their places in the file, exchange frames, so that these are in
    /// order, too.
    pub(crate) fn in_few_pieces<'a>(&mut self, pages: impl Iterator<Item = &'a mut (PageId, Frame)>) {
        let mut pages: Vec<_> = pages.collect();
        if pages.is_sorted_by_key(|(_, frame)| *frame) {
            return;
        }
        self.frames.sort(&pages.iter().map(|(page, _)| *page).collect::<Vec<_>>());
        pages.iter_mut().for_each(|(page, frame)| *frame = self.frame(*page));
    }

    /// Gathers the frames of pages that are to be filled, where they lie scattered. These pages get frames in the huge
    /// pages in which they have most already. The pages that are there move to the scattered frames.
    pub(crate) fn make_one_place<'a>(&mut self, pages: impl Iterator<Item = &'a mut (PageId, Frame)>) {
        let mut pages: Vec<_> = pages.collect();
        pages.sort_unstable_by_key(|(_, frame)| *frame);
        let pieces = 1 + pages.windows(2).filter(|pair| pair[0].1 + 1 != pair[1].1).count();
        if pieces * MIN_PER_PIECE <= pages.len() || pages.len() < MIN_PER_PIECE {
            return;
        }
        let mut blocks: Vec<(usize, Frame)> = pages
            .chunk_by(|one, other| one.1 / BLOCK == other.1 / BLOCK)
            .map(|of_block| (of_block.len(), of_block[0].1 / BLOCK))
            .collect();
        blocks.sort_unstable_by_key(|&(count, block)| (std::cmp::Reverse(count), block));
        blocks.truncate(pages.len().div_ceil(BLOCK as usize));
        let inside = |frame: Frame| blocks.iter().any(|(_, block)| *block == frame / BLOCK);
        let mut outside: Vec<_> = pages.into_iter().filter(|(_, frame)| !inside(*frame)).take(MAX_MOVED).collect();
        let all = self.frames.allocator().frames();
        let there = blocks.iter().flat_map(|(_, block)| block * BLOCK..all.min((block + 1) * BLOCK));
        for frame in there {
            let Some((page, theirs)) = outside.last_mut() else { break };
            if self.make_way(frame, *page, *theirs) {
                *theirs = frame;
                outside.pop();
            }
        }
    }

    /// What is in a frame moves to that of a page that is to be filled, which gets the frame.
    fn make_way(&mut self, frame: Frame, page: PageId, theirs: Frame) -> bool {
        match self.frames.page(frame) {
            // An evicted page that is cached there is not resident, and stays.
            Some(there) if self.pages.relocate(there, theirs) => self.frames.exchange(there, page),
            None if !self.pages.has_leftover(frame) && self.frames.take(frame) => {
                self.frames.relocate(page, frame);
                self.frames.free_block(theirs, 0);
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::buffers::Buffers;
    use crate::engine::compressed::Pool;
    use crate::engine::policy;
    use crate::io::background::Background;
    use crate::options::IoEngine;

    const FRAMES: u32 = 4096;

    /// Every page of the file is in memory, with its number in it; of the pages after these, every seventh frame's is
    /// to be filled.
    fn scattered(pool: Option<Arc<Pool>>) -> (Engine, Vec<(PageId, Frame)>) {
        let buffers = Arc::new(Buffers::new(FRAMES as usize).expect("addresses"));
        let background = Arc::new(Background::new(IoEngine::Threads, buffers.clone()).expect("threads"));
        let mut engine = Engine::new(policy("lru").expect("a policy"), FRAMES, None, buffers, background, pool);
        let mut pages = Vec::new();
        while let Ok(page) = engine.page(1, pages.len() as u64)
            && let Some((frame, _)) =
                engine.frames.available().checked_sub(1).and_then(|_| engine.begin_fill(page, true))
        {
            // SAFETY: the page is busy on this thread's account.
            unsafe { engine.buffers.page_mut(frame) }.0[..4].copy_from_slice(&page.to_le_bytes());
            pages.push(page);
        }
        let gone: Vec<PageId> = pages.iter().copied().filter(|page| page % 7 == 3).collect();
        for page in pages {
            if page % 7 == 3 { engine.abandon_fill(page) } else { engine.finish_fill(page, false) }
        }
        let mut to_fill = Vec::new();
        for place in 0..gone.len() as u64 - 100 {
            let page = engine.page(1, (1 << 20) + place).expect("a number");
            let (frame, _) = engine.begin_fill(page, true).expect("a frame");
            to_fill.push((page, frame));
        }
        (engine, to_fill)
    }

    fn pieces(pages: &[(PageId, Frame)]) -> usize {
        let mut frames: Vec<Frame> = pages.iter().map(|(_, frame)| *frame).collect();
        frames.sort_unstable();
        1 + frames.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count()
    }

    #[test]
    fn others_move_out_of_the_way_and_keep_their_contents() {
        let (mut engine, mut to_fill) = scattered(None);
        let before = pieces(&to_fill);
        assert!(before * 2 > to_fill.len(), "{before} pieces of {} pages are no test", to_fill.len());
        // Some are read: they stay where they are.
        let pinned: Vec<_> =
            (0..FRAMES).filter_map(|frame| engine.frames.page(frame)).filter(|page| page % 50 == 2).collect();
        let pinned: Vec<_> = pinned.into_iter().filter(|page| engine.pages.is_resident(*page)).collect();
        let places: Vec<Frame> = pinned.iter().map(|page| engine.frame(*page)).collect();
        places.iter().for_each(|frame| engine.buffers.pins.pin(*frame));
        for _ in 0..20 {
            let steps = pieces(&to_fill);
            engine.make_one_place(to_fill.iter_mut());
            assert!(pieces(&to_fill) <= steps);
        }
        engine.in_few_pieces(to_fill.iter_mut());
        assert!(to_fill.is_sorted_by_key(|(_, frame)| *frame));
        assert!(pieces(&to_fill) * MIN_PER_PIECE <= to_fill.len() * 2, "{} pieces, {before} before", pieces(&to_fill));
        assert_eq!(pinned.iter().map(|page| engine.frame(*page)).collect::<Vec<_>>(), places, "a pinned page moved");
        let mut resident = 0;
        for frame in 0..FRAMES {
            let Some(page) = engine.frames.page(frame) else { continue };
            assert_eq!(engine.frame(page), frame);
            if engine.pages.is_resident(page) {
                resident += 1;
                assert_eq!(engine.pages.frame(page), frame, "readers look elsewhere");
                // SAFETY: no thread writes.
                assert_eq!(unsafe { engine.buffers.page(frame) }.0[..4], page.to_le_bytes(), "contents of page {page}");
            } else {
                assert!(to_fill.contains(&(page, frame)), "page {page} has a frame that it does not know");
            }
        }
        assert!(resident > FRAMES / 2 && engine.frames.available() <= 100, "{resident} resident");
    }

    #[test]
    fn a_free_frame_with_the_bytes_of_an_evicted_page_is_nobodys_place() {
        let pool = Arc::new(Pool::new(1 << 20).expect("memory"));
        let (mut engine, mut to_fill) = scattered(Some(pool));
        // Three quarters of the frames are free, and most of these have what was evicted from them.
        engine.threshold = 0;
        while engine.frames.available() < FRAMES / 4 * 3 {
            assert!(engine.make_room(None));
        }
        let found = |engine: &Engine| -> Vec<(PageId, Frame)> {
            (0..FRAMES).filter_map(|page| Some((page, engine.pages.free_frame(page)?))).collect()
        };
        let before = found(&engine);
        assert!(before.len() > FRAMES as usize / 2, "{} evicted pages are no test", before.len());
        for _ in 0..20 {
            engine.make_one_place(to_fill.iter_mut());
        }
        for (page, frame) in &before {
            assert_eq!(engine.frames.page(*frame), None, "the bytes of page {page} would be written over");
        }
        assert_eq!(found(&engine), before);
    }
}
