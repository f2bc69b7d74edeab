//! Numbers of pages and the memory that their records take: when there are more, when they are used again, and how
//! frames give way to records.
//!
//! Frames give way in steps, one with each fill. A cache of many frames has thousands to give when its records double.
//! A thread that asks for the lock meanwhile waits for one step alone.
//!
//! Cost: of a step the eviction of [`MAX_RETIRED_AT_ONCE`] pages. A record is less than a frame, and a fill has no more
//! than one new record. So steps keep up with the records that are in use.

use refault_core::frames::{Frame, FreePool};
use refault_store::PAGE_SIZE;

use super::Engine;
use crate::engine::table::{GROUP, GroupId, STEP};
use crate::error::ReadError;

/// Bytes of records for which no frame gives way: small caches have the frames that their memory says.
pub(super) const FREE_RECORDS: usize = 1 << 20;
/// The records of pages may take one part in this many of memory beyond these. Between a half and all of it is used
/// once enough pages were asked for.
pub(super) const RECORDS_SHARE: u64 = 8;
/// At most one frame in this many gives way, whatever else is kept besides.
const RETIRED_SHARE: u32 = 4;
/// Fills after which records are counted anew: those of writes and compressed pages come and go.
const FILLS_PER_CHARGE: u32 = 256;
/// Frames looked at for one that goes in place of another. What is not the last to go because it is read or filled just
/// now stays.
const MAX_TRIED: u32 = 64;
/// Frames that give way while the lock is held once: as many as the kernels' policies evict at once.
const MAX_RETIRED_AT_ONCE: u32 = 32;

impl Engine {
    /// All numbers are given: makes more, or takes those of the group that has had no page in memory for the longest
    /// time.
    #[cold]
    pub(super) fn another_group(&mut self) -> Result<GroupId, ReadError> {
        if !self.may_number_more()
            && let Some(group) = self.pages.groups.oldest()
        {
            self.take_number(group);
            return Ok(group);
        }
        self.number_more()?;
        self.pages.groups.take_free().ok_or(ReadError::TooManyPages)
    }

    /// Nothing is known of a group's pages any more. None of them is busy.
    pub(super) fn take_number(&mut self, group: GroupId) {
        for page in group * GROUP..(group + 1) * GROUP {
            self.forget(page);
            self.policy.forgotten(page);
            self.pages.clear(page);
        }
        self.pages.groups.remove(group);
    }

    /// Whether the records of twice as many numbers, for which room is made at once, stay within their part of memory.
    fn may_number_more(&self) -> bool {
        let has_room = self.numbered / GROUP < self.pages.groups.table().most();
        has_room
            && (!(self.numbered / (GROUP * STEP)).is_power_of_two() || 2 * self.record_bytes() <= self.most_records)
    }

    fn number_more(&mut self) -> Result<(), ReadError> {
        if self.numbered / GROUP >= self.pages.groups.table().most() {
            return Err(ReadError::TooManyPages);
        }
        self.numbered += GROUP * STEP;
        let pages = self.numbered as usize;
        self.policy.grow(pages);
        self.pages.grow(pages);
        self.frames.grow(pages);
        self.charge();
        Ok(())
    }

    /// A page is to be filled: a step is made of what is due.
    pub(super) fn charge_fill(&mut self) {
        self.fills = self.fills.wrapping_add(1);
        if self.fills.is_multiple_of(FILLS_PER_CHARGE) {
            self.charge();
        }
        self.retire();
    }

    /// Frames give way to records: what these take beyond [`FREE_RECORDS`] is taken off the memory that the frames
    /// have. Frames that have gone do not come back, because the records that grow with the pages asked for never
    /// shrink.
    fn charge(&mut self) {
        let charged = self.metadata_bytes().saturating_sub(FREE_RECORDS).div_ceil(PAGE_SIZE) as u32;
        let most = self.frames.allocator().frames() / RETIRED_SHARE;
        self.to_retire = self.to_retire.max(charged.min(most));
    }

    /// Evicts until some more frames have gone, all that are to go, or nothing can be evicted.
    fn retire(&mut self) {
        let wanted = self.to_retire.min(self.retired + MAX_RETIRED_AT_ONCE);
        if self.retired >= wanted {
            return;
        }
        self.set_capacity(wanted);
        let mut gone = Vec::new();
        while self.retired < wanted
            && self.make_room(None)
            && self.in_use() < self.limit
            && let Some(frame) = self.frames.allocate_block(FreePool::Default, 0)
        {
            // An evicted page whose bytes are in it loses them.
            let _ = self.pages.leftover(frame);
            self.retired += 1;
            gone.push(self.exchange(frame));
        }
        self.set_capacity(self.retired);
        self.background.give_back(gone);
    }
}

impl Engine {
    /// The frame that goes in place of one that was taken: the last one that is left, whose page moves, so that what is
    /// left lies together, in as few huge pages as can be. The one that was taken, if another does not come free at
    /// once.
    fn exchange(&mut self, taken: Frame) -> Frame {
        if taken >= self.retires_below {
            return taken;
        }
        for _ in 0..MAX_TRIED.min(self.retires_below) {
            self.retires_below -= 1;
            let last = self.retires_below;
            if last == taken {
                return taken;
            }
            if self.frames.take(last) {
                let _ = self.pages.leftover(last);
                self.frames.free_block(taken, 0);
                return last;
            }
            // A frame without a page has gone already, or a thread still reads what was in it.
            if let Some(page) = self.frames.page(last)
                && self.pages.relocate(page, taken)
            {
                self.frames.relocate(page, taken);
                return last;
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice, IoSliceMut};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use refault_core::Memory;

    use super::*;
    use crate::engine::buffers::Buffers;
    use crate::engine::groups::MAX_AT_ONCE;
    use crate::engine::policy;
    use crate::io::background::Background;
    use crate::io::backing::Backing;
    use crate::io::opened::Opened;
    use crate::options::IoEngine;

    fn engine(name: &str, frames: u32) -> Engine {
        let buffers = Arc::new(Buffers::new(frames as usize).expect("addresses"));
        let background = Arc::new(Background::new(IoEngine::Threads, buffers.clone()).expect("threads"));
        Engine::new(policy(name).expect("a policy"), frames, None, buffers, background, None)
    }

    /// A file that has nothing.
    struct Nothing;

    impl Backing for Nothing {
        fn read(&self, _: &mut [IoSliceMut<'_>], _: u64) -> io::Result<usize> {
            Ok(0)
        }
        fn write(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
            Ok(0)
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    impl Engine {
        fn frames_of_pages_are_theirs(&self) {
            for frame in 0..self.frames.allocator().frames() {
                let Some(page) = self.frames.page(frame) else { continue };
                assert_eq!((self.pages.is_resident(page), self.frames.frame(page)), (true, Some(frame)));
                assert_eq!(self.pages.frame(page), frame, "readers look elsewhere");
            }
        }
    }

    /// A page that is not there comes in.
    fn read(engine: &mut Engine, index: u64) {
        let page = engine.page(1, index).expect("a number");
        engine.begin_fill(page, false).expect("a frame");
        engine.finish_fill(page, false);
        engine.accessed(page, false, false);
    }

    #[test]
    fn frames_give_way_in_steps_and_records_are_paid_for() {
        for name in ["lru", "mglru", "adaptive"] {
            const FRAMES: u32 = 1 << 16;
            let mut engine = engine(name, FRAMES);
            let (mut most_due, mut steps) = (0, 0);
            // A page of each group, so that numbers are made as fast as can be.
            for number in 0..u64::from(FRAMES) * 3 {
                let (retired, evicted) = (engine.retired, engine.counters().pgsteal);
                read(&mut engine, number * u64::from(GROUP));
                let (retired, evicted) = (engine.retired - retired, engine.counters().pgsteal - evicted);
                assert!(retired <= MAX_RETIRED_AT_ONCE, "{name}: {retired} frames gave way in one hold");
                // And those that the page itself needs, of which the kernels' policies take more at once.
                assert!(evicted <= 4 * u64::from(MAX_RETIRED_AT_ONCE), "{name}: {evicted} pages went in one hold");
                most_due = most_due.max(engine.to_retire - engine.retired);
                steps += u32::from(retired > 0);
            }
            assert!(most_due > 10 * MAX_RETIRED_AT_ONCE, "{name}: no more than {most_due} frames were due at once");
            assert!(steps > 10, "{name}: {steps}");
            assert_eq!(engine.retired, engine.to_retire, "{name}: all that was due has gone");
        }
    }

    #[test]
    fn what_a_reader_has_read_is_not_unread_although_the_policy_has_not_heard() {
        for reads in [false, true] {
            let mut engine = engine("lru", 64);
            let opened = Arc::new(Opened::new(2, Box::new(Nothing), 0));
            engine.open_file(opened.clone());
            let page = engine.page(2, 0).expect("a number");
            engine.begin_fill(page, true).expect("a frame");
            engine.finish_ahead(page, false);
            assert_eq!(Memory::unread(&engine.pages), 1);
            if reads {
                engine.pages.take_mark(page);
            }
            (0..128).for_each(|index| read(&mut engine, index));
            assert!(!engine.pages.is_resident(page));
            assert_eq!(opened.unread.load(Ordering::Relaxed), u32::from(!reads), "windows shrink by that");
            assert_eq!(Memory::unread(&engine.pages), 0);
        }
    }

    #[test]
    fn what_is_written_over_is_not_unread() {
        let mut engine = engine("lru", 64);
        let page = engine.page(1, 0).expect("a number");
        engine.begin_fill(page, true).expect("a frame");
        engine.finish_ahead(page, false);
        engine.accessed(page, true, true);
        assert_eq!(Memory::unread(&engine.pages), 0);
    }

    #[test]
    fn the_last_frames_give_way() {
        const FRAMES: u32 = 1 << 15;
        let mut engine = engine("lru", FRAMES);
        (0..u64::from(FRAMES) * 2).for_each(|number| read(&mut engine, number * u64::from(GROUP)));
        let left = FRAMES - engine.retired;
        assert!(engine.retired > 1000, "{}", engine.retired);
        // All that are left are below, and each has a page or is free.
        let below =
            (0..left).filter(|frame| engine.frames.page(*frame).is_some() || engine.frames.allocator().is_free(*frame));
        assert_eq!(below.count() as u32, left);
        assert!((left..FRAMES).all(|frame| engine.frames.page(frame).is_none()));
        engine.frames_of_pages_are_theirs();
    }

    #[test]
    fn a_file_that_is_closed_gives_its_numbers_back_a_few_at_a_time() {
        const GROUPS: u64 = 5000;
        let mut engine = engine("lru", 1 << 12);
        let numbered = |engine: &Engine| {
            (0..GROUPS).filter(|at| engine.pages.groups.find(1, at * u64::from(GROUP)).is_some()).count()
        };
        for number in 0..GROUPS {
            engine.page(1, number * u64::from(GROUP)).expect("a number");
        }
        let (mut before, mut holds) = (numbered(&engine), 0);
        while engine.close_some(1) {
            let after = numbered(&engine);
            assert!(before - after <= MAX_AT_ONCE, "{} groups in one hold", before - after);
            (before, holds) = (after, holds + 1);
        }
        assert_eq!((before, holds), (0, GROUPS.div_ceil(MAX_AT_ONCE as u64)));
    }
}
