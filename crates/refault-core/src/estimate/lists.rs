//! Lists of sampled objects, by 16-bit numbers: a ring takes 2 bytes for each object on it, links 4 for each there is.
//!
//! Invariant: `bytes` is the sum of the sizes of the objects that count on the list.

use std::collections::VecDeque;

/// A sampled object's number.
pub(super) type Id = u16;
/// No object.
pub(super) const NONE: Id = Id::MAX;
/// Objects that can have a number.
pub(super) const MAX_OBJECTS: usize = NONE as usize;
/// Objects by which lists grow, so that they never have room for many more than they hold.
pub(super) const STEP: usize = 512;

/// A queue: objects come at one end and leave at the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    ids: VecDeque<Id>,
    pub(super) bytes: u64,
}

impl Ring {
    #[inline]
    pub(super) fn push(&mut self, id: Id, size: u64) {
        if self.ids.len() == self.ids.capacity() {
            self.ids.reserve_exact(STEP);
        }
        self.ids.push_back(id);
        self.bytes = self.bytes.saturating_add(size);
    }

    /// Takes the oldest object off. Its size is to be taken from `bytes`, if it counted.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Id> {
        self.ids.pop_front()
    }

    /// An object does not count any more.
    #[inline]
    pub(super) fn subtract(&mut self, size: u64) {
        self.bytes = self.bytes.saturating_sub(size);
    }

    /// An object that counts has another size from now on.
    pub(super) fn resize(&mut self, from: u64, to: u64) {
        self.bytes = self.bytes.saturating_sub(from).saturating_add(to);
    }

    /// Takes the oldest entry of an object off, wherever it is: O(length).
    pub(super) fn remove(&mut self, id: Id) {
        if let Some(at) = self.ids.iter().position(|other| *other == id) {
            self.ids.remove(at);
        }
    }

    /// Keeps some objects, by number, in their order. What counts of the others is to be taken from `bytes`.
    pub(super) fn retain(&mut self, kept: &[bool]) {
        self.ids.retain(|id| kept[usize::from(*id)]);
        self.ids.shrink_to(self.ids.len() + STEP);
    }

    /// Bytes of memory.
    pub(super) fn footprint(&self) -> usize {
        self.ids.capacity() * size_of::<Id>()
    }
}

/// Neighbours of each object on one list that objects can leave from its middle: newer, older.
#[derive(Clone, Debug)]
pub(super) struct Links {
    neighbours: Vec<[Id; 2]>,
    pub(super) head: Id,
    tail: Id,
}

const NEWER: usize = 0;
const OLDER: usize = 1;

impl Links {
    pub(super) fn new() -> Links {
        Links { neighbours: Vec::new(), head: NONE, tail: NONE }
    }

    pub(super) fn grow(&mut self, objects: usize) {
        grow(&mut self.neighbours, objects, [NONE; 2]);
    }

    /// The neighbour towards the head, or [`NONE`].
    #[inline]
    pub(super) fn newer(&self, id: Id) -> Id {
        self.neighbours[usize::from(id)][NEWER]
    }

    #[inline]
    pub(super) fn push_head(&mut self, id: Id) {
        self.neighbours[usize::from(id)] = [NONE, self.head];
        match self.head {
            NONE => self.tail = id,
            head => self.neighbours[usize::from(head)][NEWER] = id,
        }
        self.head = id;
    }

    #[inline]
    pub(super) fn remove(&mut self, id: Id) {
        let [newer, older] = self.neighbours[usize::from(id)];
        match newer {
            NONE => self.head = older,
            newer => self.neighbours[usize::from(newer)][OLDER] = older,
        }
        match older {
            NONE => self.tail = newer,
            older => self.neighbours[usize::from(older)][NEWER] = newer,
        }
    }

    /// Bytes of memory.
    pub(super) fn footprint(&self) -> usize {
        self.neighbours.capacity() * size_of::<[Id; 2]>()
    }
}

/// Makes room for this many objects, without room for more.
pub(super) fn grow<T: Clone>(records: &mut Vec<T>, objects: usize, record: T) {
    if objects > records.len() {
        records.reserve_exact(objects - records.len());
        records.resize(objects, record);
    }
}
