//! The border between what may be resident and what may be compressed, under one total.
//!
//! Both sides are bounded by the kernel: the resident one by the group's limit, the compressed one by the device's. The
//! bounds' sum is the total, so that no program, whatever it writes and however fast, exceeds it between two looks. The
//! compressed side is kept ahead of its use by a *slack*, which is as large as the use has grown lately; a look that
//! finds too little of it lowers the limit a step. The kernel then compresses as much, and the look gives what that
//! brings to the slack.
//!
//! Invariant: limit + compressed + slack ≤ total, but for a 64th of it, which is lent where a full device keeps the
//! kernel from making room. What does not compress cannot pay it back: then the border is stuck, and says so.
//! Cost: some reads and a write per look.

use std::io;

use crate::PAGE;

/// The least that the border moves by.
pub const GRAIN: u64 = 128 << 10;
/// The part of the total that is lent at most.
pub const RESERVE: u64 = 64;
/// Parts of the total that the slack is, at least and at most.
const MIN_SLACK: u64 = 32;
/// See [`MIN_SLACK`].
pub const MAX_SLACK: u64 = 8;
/// Looks ahead that the slack lasts for, as fast as use grows.
const LOOKS_AHEAD: u64 = 4;
/// Steps per look, and while the program is paused.
const MAX_STEPS: u32 = 8;
const MAX_PAUSED_STEPS: u32 = 64;

/// The two sides, as the kernel has them.
pub trait Sides {
    /// Bounds the resident side, making room if there is more.
    ///
    /// # Errors
    /// No room can be made.
    fn set_limit(&mut self, bytes: u64) -> io::Result<()>;
    /// Bounds the compressed side. What is beyond it stays.
    ///
    /// # Errors
    /// It is gone.
    fn set_room(&mut self, bytes: u64) -> io::Result<()>;
    /// Bytes resident.
    ///
    /// # Errors
    /// It is gone.
    fn resident(&self) -> io::Result<u64>;
    /// Bytes that the compressed side takes.
    ///
    /// # Errors
    /// It is gone.
    fn compressed(&self) -> io::Result<u64>;
    /// Pauses the program, or lets it go on: what is paused cannot use up the room that is made.
    fn pause(&mut self, _is_paused: bool) {}
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing moved.
    Calm,
    /// The border moved.
    Moved,
    /// It was to move, and the kernel found no room.
    Stuck,
}

/// The border. All in bytes.
#[derive(Clone, Debug)]
pub struct Border {
    total: u64,
    limit: u64,
    room: u64,
    compressed: u64,
    growth: u64,
    is_paused: bool,
}

impl Border {
    /// The border of a total under which nothing is compressed yet.
    pub fn new(total: u64) -> Border {
        let mut border = Border { total, limit: 0, room: 0, compressed: 0, growth: 0, is_paused: false };
        // As if it had grown, until it is known how fast it does.
        border.growth = total / RESERVE;
        border.room = border.slack();
        border.limit = total - border.room;
        border
    }

    /// The bound of the resident side.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The bound of the compressed side.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Changes the total; the next looks follow.
    pub fn set_total(&mut self, total: u64) {
        self.total = total;
    }

    /// How far the compressed side's bound is to be from its use.
    fn slack(&self) -> u64 {
        let least = (self.total / MIN_SLACK).max(GRAIN);
        (self.growth * LOOKS_AHEAD).clamp(least, (self.total / MAX_SLACK).max(least))
    }

    /// Looks at both sides, and moves the border. The program is paused meanwhile if it has used half of the slack, and
    /// goes on when that is there again: never where no room is found.
    ///
    /// # Errors
    /// A side is gone.
    pub fn look(&mut self, sides: &mut impl Sides) -> io::Result<Found> {
        let now = sides.compressed()?;
        self.growth = now.saturating_sub(self.compressed).max(self.growth - self.growth.div_ceil(8));
        self.compressed = now;
        let wanted = self.slack();
        if self.room.saturating_sub(now) < wanted / 2 {
            self.pause(sides, true);
        }
        let steps = if self.is_paused { MAX_PAUSED_STEPS } else { MAX_STEPS };
        let mut found = Found::Calm;
        for _ in 0..steps {
            match self.step(sides, wanted)? {
                Found::Moved => found = Found::Moved,
                Found::Calm => break,
                Found::Stuck => {
                    found = Found::Stuck;
                    break;
                }
            }
        }
        // A program that runs on with hardly any slack finds no room at its next page. It may be in the kernel then,
        // which fails the call or ends the program instead of having it wait.
        if self.is_paused && found != Found::Stuck && self.room.saturating_sub(sides.compressed()?) >= wanted / 2 {
            self.pause(sides, false);
        }
        Ok(found)
    }

    fn pause(&mut self, sides: &mut impl Sides, is_paused: bool) {
        if self.is_paused != is_paused {
            self.is_paused = is_paused;
            sides.pause(is_paused);
        }
    }

    /// Moves the border once; it is calm when all is as wanted.
    fn step(&mut self, sides: &mut impl Sides, wanted: u64) -> io::Result<Found> {
        let compressed = sides.compressed()?;
        let mut slack = self.room.saturating_sub(compressed);
        if slack > wanted * 2 {
            self.set_room(sides, compressed + wanted)?;
            slack = wanted;
        }
        let resident = sides.resident()?.max(self.limit);
        let taken = resident + compressed + slack;
        if taken < self.total {
            let spare = self.total - taken;
            let more = wanted.saturating_sub(slack).min(spare);
            if more > 0 {
                self.set_room(sides, compressed + slack + more)?;
            }
            if spare - more >= GRAIN {
                self.limit += spare - more;
                sides.set_limit(self.limit)?;
            }
            return Ok(if more > 0 || spare - more >= GRAIN { Found::Moved } else { Found::Calm });
        }
        let debt = taken - self.total;
        if debt == 0 && slack >= wanted - wanted / 4 {
            return Ok(Found::Calm);
        }
        if self.lower(sides, debt.max(wanted.saturating_sub(slack)))? {
            return Ok(Found::Moved);
        }
        self.lend(sides, compressed, taken - slack)
    }

    fn set_room(&mut self, sides: &mut impl Sides, bytes: u64) -> io::Result<()> {
        self.room = bytes;
        sides.set_room(bytes)
    }

    /// Lowers the limit by a step. Whether the kernel found room.
    fn lower(&mut self, sides: &mut impl Sides, wanted: u64) -> io::Result<bool> {
        let step = wanted.clamp(GRAIN, (self.total / MIN_SLACK).max(GRAIN));
        let Some(limit) = self.limit.checked_sub(step).filter(|limit| *limit >= GRAIN) else { return Ok(false) };
        // Where a limit is a wish, one that is not kept is not lowered further: the kernel is asked for it again, since
        // what could not be compressed for want of room a moment ago can be now.
        let before = sides.resident()?;
        if before > self.limit + GRAIN {
            return Ok(sides.set_limit(self.limit).is_ok() && sides.resident()? < before);
        }
        if sides.set_limit(limit).is_ok() {
            self.limit = limit;
            return Ok(true);
        }
        // What the program does not use needs no room made for it.
        let used = sides.resident()?.next_multiple_of(PAGE).max(limit);
        if used >= self.limit || sides.set_limit(used).is_err() {
            return Ok(false);
        }
        self.limit = used;
        Ok(true)
    }

    /// Lends the compressed side a little, without which nothing can leave the resident one. It is stuck if that has been
    /// lent already.
    fn lend(&mut self, sides: &mut impl Sides, compressed: u64, others: u64) -> io::Result<Found> {
        // The program is not to use it.
        self.pause(sides, true);
        let most = (self.total + self.total / RESERVE).saturating_sub(others);
        let room = compressed + most.min(GRAIN * 2);
        if room <= self.room {
            return Ok(Found::Stuck);
        }
        self.set_room(sides, room)?;
        Ok(Found::Moved)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A kernel: pages that leave the resident side take a part of what they took there, as far as there is room.
    struct Model {
        resident: u64,
        compressed: u64,
        limit: u64,
        room: u64,
        /// What a page takes when it is compressed, in 64ths.
        ratio: u64,
        peak: u64,
        /// The limit is a wish: it is set whether or not room is made for it, and as many times as this none is made.
        deaf: Option<u32>,
        is_paused: bool,
    }

    impl Model {
        fn new(border: &Border, ratio: u64) -> Model {
            let (limit, room) = (border.limit(), border.room());
            Model { resident: 0, compressed: 0, limit, room, ratio, peak: 0, deaf: None, is_paused: false }
        }

        fn evict(&mut self) -> bool {
            let takes = PAGE * self.ratio / 64;
            if self.resident < PAGE || self.compressed + takes > self.room {
                return false;
            }
            (self.resident, self.compressed) = (self.resident - PAGE, self.compressed + takes);
            true
        }

        /// The program touches new pages until it is paused. Whether it was.
        fn touch(&mut self, pages: u64) -> bool {
            for _ in 0..pages {
                if self.is_paused {
                    return true;
                }
                if self.resident + PAGE > self.limit && !self.evict() {
                    return true;
                }
                self.resident += PAGE;
                self.peak = self.peak.max(self.resident + self.compressed);
            }
            false
        }

        /// The program frees what is compressed.
        fn free(&mut self, bytes: u64) {
            self.compressed = self.compressed.saturating_sub(bytes);
        }
    }

    impl Sides for Model {
        fn set_limit(&mut self, bytes: u64) -> io::Result<()> {
            if let Some(deaf) = self.deaf {
                (self.limit, self.deaf) = (bytes, Some(deaf.saturating_sub(1)));
                while deaf == 0 && self.resident > bytes && self.evict() {}
                return Ok(());
            }
            while self.resident > bytes {
                if !self.evict() {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
            }
            self.limit = bytes;
            Ok(())
        }

        fn set_room(&mut self, bytes: u64) -> io::Result<()> {
            self.room = bytes;
            Ok(())
        }

        fn resident(&self) -> io::Result<u64> {
            Ok(self.resident)
        }

        fn compressed(&self) -> io::Result<u64> {
            Ok(self.compressed)
        }

        fn pause(&mut self, is_paused: bool) {
            self.is_paused = is_paused;
        }
    }

    proptest! {
        #[test]
        fn no_program_exceeds_the_total_whatever_it_does_between_two_looks(
            mebibytes in 2u64..200,
            ratio in 0u64..=64,
            steps in prop::collection::vec((0u64..20_000, 0u64..(8 << 20)), 1..60),
        ) {
            let total = mebibytes << 20;
            let mut border = Border::new(total);
            let mut model = Model::new(&border, ratio);
            for (pages, freed) in steps {
                model.touch(pages);
                model.free(freed);
                border.look(&mut model).expect("a model is there");
                // What goes on finds room at its next pages.
                prop_assert!(model.is_paused || model.room - model.compressed >= border.slack() / 2, "{border:?}");
            }
            prop_assert!(model.peak <= total + total / RESERVE, "{} of {total}", model.peak);
        }

        #[test]
        fn what_compresses_fits(mebibytes in 8u64..200, ratio in 0u64..=32) {
            let total = mebibytes << 20;
            let mut border = Border::new(total);
            let mut model = Model::new(&border, ratio);
            // One and a half times the total, of which two thirds and their half make five sixths at most.
            let mut left = total * 3 / 2 / PAGE;
            for _ in 0..20_000 {
                if left == 0 {
                    break;
                }
                let before = model.resident + model.compressed * 64 / ratio.max(1);
                let pages = left.min(64);
                left -= if model.touch(pages) { 0 } else { pages };
                prop_assert!(ratio == 0 || model.resident + model.compressed * 64 / ratio + PAGE >= before);
                border.look(&mut model).expect("a model is there");
            }
            prop_assert_eq!(left, 0, "{:?}", border);
        }
    }

    #[test]
    fn what_does_not_compress_is_stuck_and_a_larger_total_frees_it() {
        let mut border = Border::new(16 << 20);
        let mut model = Model::new(&border, 64);
        let mut found = Found::Calm;
        for _ in 0..200 {
            model.touch(1000);
            found = border.look(&mut model).expect("a model is there");
        }
        assert_eq!(found, Found::Stuck);
        border.set_total(32 << 20);
        for _ in 0..200 {
            found = border.look(&mut model).expect("a model is there");
        }
        assert_eq!(found, Found::Calm, "{border:?}");
        assert!(!model.touch(1000), "{border:?}");
    }

    #[test]
    fn a_wish_that_was_not_kept_is_made_again() {
        let mut border = Border::new(16 << 20);
        let mut model = Model::new(&border, 16);
        model.deaf = Some(5);
        // The program went on while no room was made for it, by more than is lent.
        model.resident = border.limit() + (border.total / MIN_SLACK).max(GRAIN * 2);
        let mut found = Found::Stuck;
        for _ in 0..20 {
            found = border.look(&mut model).expect("a model is there");
        }
        assert_eq!(found, Found::Calm, "{border:?}, {} resident", model.resident);
        assert!(model.resident <= border.limit() + GRAIN);
    }

    #[test]
    fn what_is_not_used_is_given_back_where_no_room_can_be_made() {
        let mut border = Border::new(30 << 20);
        let mut model = Model::new(&border, 40);
        while !model.touch(16) {}
        // The device is full, the program paused before it used what its limit had become, and the total is less than both.
        model.resident -= GRAIN * 4;
        (model.room, border.room) = (model.compressed, model.compressed);
        border.set_total(border.limit() + model.compressed - border.total / RESERVE * 2);
        let mut found = Found::Stuck;
        for _ in 0..200 {
            found = border.look(&mut model).expect("a model is there");
        }
        assert_eq!(found, Found::Calm, "{border:?}, {} resident", model.resident);
        assert!(!model.touch(16), "{border:?}");
    }
}
