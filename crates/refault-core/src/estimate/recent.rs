//! What was asked for a moment ago: small tables that see each access, in the sample or not.
//!
//! Objects that are asked for all the time are in the sample or not by chance, and their accesses are many. A table
//! knows them, so what is news to it is told of all accesses at little cost: how much of it is in the sample says how
//! large the sample really is ([`super::correction`]).
//!
//! Cost: 36 KiB; two loads and two stores per access.

/// Places of the tables: about what caches hold that are small, and less small.
const PLACES: [usize; TABLES] = [1 << 10, 1 << 13];
/// Tables there are.
pub(super) const TABLES: usize = 2;

/// See the module.
pub(super) struct Recent([Box<[u32]>; TABLES]);

impl Recent {
    pub(super) fn new() -> Recent {
        Recent(PLACES.map(|places| vec![0; places].into_boxed_slice()))
    }

    /// An object was asked for; to which of the tables that is news.
    #[inline]
    pub(super) fn is_news(&mut self, hash: u64) -> [bool; TABLES] {
        // The bits above those that say where.
        let tag = (hash >> 16) as u32 | 1;
        std::array::from_fn(|table| {
            let place = &mut self.0[table][hash as usize % PLACES[table]];
            std::mem::replace(place, tag) != tag
        })
    }

    /// Bytes of memory.
    pub(super) fn footprint(&self) -> usize {
        self.0.iter().map(|table| table.len() * size_of::<u32>()).sum()
    }
}
