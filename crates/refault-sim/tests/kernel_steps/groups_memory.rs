//! Memory of several tasks in a tree of groups, each task with an address space and pages of its own.
//!
//! Each task's pages are a [`FlatMemory`]; page ids of the next task begin where those of the last end.

use refault_core::memory::{
    Eviction, Groups, LookAround, Memory, Neighbourhood, NodeFrames, PageTables, Protection, References, RegionKey,
    SwapSpace, Walk,
};
use refault_core::{LruvecId, PageId, Shadow};
use refault_sim::flat_memory::Swap;
use refault_sim::{FlatMemory, Layout};

/// Keeps the regions of tasks apart.
const REGION_SHIFT: u32 = 40;

/// A task's pages.
pub struct Part {
    pub memory: FlatMemory,
    pub group: LruvecId,
    pub base: PageId,
}

/// A control group; the root is the first. Sizes are pages.
pub struct Group {
    pub name: String,
    pub parent: Option<LruvecId>,
    pub max: u64,
    pub low: u64,
    pub min: u64,
}

pub struct GroupsMemory {
    pub parts: Vec<Part>,
    pub groups: Vec<Group>,
    pub now: u64,
    ids: usize,
}

impl GroupsMemory {
    pub fn new() -> GroupsMemory {
        let root = Group { name: String::new(), parent: None, max: u64::MAX, low: 0, min: 0 };
        GroupsMemory { parts: Vec::new(), groups: vec![root], now: 0, ids: 0 }
    }

    /// Adds a task's pages.
    pub fn add(&mut self, layout: &Layout, group: LruvecId) {
        let base = self.ids as PageId;
        self.parts.push(Part { memory: FlatMemory::new(layout, Swap::default()), group, base });
        self.ids += layout.ids();
    }

    pub fn ids(&self) -> usize {
        self.ids
    }

    /// The group and those above it.
    pub fn ancestors(&self, group: LruvecId) -> impl Iterator<Item = LruvecId> + '_ {
        std::iter::successors(Some(group), |group| self.groups[usize::from(*group)].parent)
    }

    /// Resident pages of the group and those below it.
    pub fn usage(&self, group: LruvecId) -> u64 {
        let below = |part: &&Part| self.ancestors(part.group).any(|above| above == group);
        self.parts.iter().filter(below).map(|part| part.memory.resident() as u64).sum()
    }

    /// The part that has a page, by number, and the page's id there.
    fn place(&self, page: PageId) -> (usize, PageId) {
        let part = self.parts.partition_point(|part| part.base <= page) - 1;
        (part, page - self.parts[part].base)
    }
}

/// Passes a visit on with the ids that the policy knows.
struct Shifted<'a, V> {
    visitor: &'a mut V,
    base: PageId,
    space: RegionKey,
}

impl<V: LookAround> LookAround for Shifted<'_, V> {
    fn eligible(&mut self, page: PageId) -> bool {
        self.visitor.eligible(page + self.base)
    }
    fn young(&mut self, page: PageId) {
        self.visitor.young(page + self.base);
    }
}

/// [`Shifted`] for walks.
struct ShiftedWalk<'a, V>(Shifted<'a, V>);

impl<V: Walk> Walk for ShiftedWalk<'_, V> {
    fn starts(&mut self) {
        self.0.visitor.starts();
    }
    fn forced(&self) -> bool {
        self.0.visitor.forced()
    }
    fn enters(&mut self, region: RegionKey, region_accessed: Option<bool>, forced: bool) -> bool {
        self.0.visitor.enters(region + self.0.space, region_accessed, forced)
    }
    fn eligible(&mut self, page: PageId) -> bool {
        self.0.visitor.eligible(page + self.0.base)
    }
    fn young(&mut self, page: PageId) {
        self.0.visitor.young(page + self.0.base);
    }
    fn leaves(&mut self, region: RegionKey, entries: u32, young: u32) {
        self.0.visitor.leaves(region + self.0.space, entries, young);
    }
}

impl Memory for GroupsMemory {
    fn take_references(&mut self, page: PageId) -> References {
        let (part, page) = self.place(page);
        self.parts[part].memory.take_references(page)
    }
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let (part, page) = self.place(page);
        self.parts[part].memory.evict(page, shadow)
    }
    fn is_resident(&self, page: PageId) -> bool {
        let (part, page) = self.place(page);
        self.parts[part].memory.is_resident(page)
    }
    fn is_mapped(&self, page: PageId) -> bool {
        let (part, page) = self.place(page);
        self.parts[part].memory.is_mapped(page)
    }
    fn now(&self) -> u64 {
        self.now
    }
    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }
    fn groups(&mut self) -> Option<&mut impl Groups> {
        Some(self)
    }
}

impl SwapSpace for GroupsMemory {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        Swap::default().pages
    }
    fn needs_write(&self, page: PageId) -> bool {
        let (part, page) = self.place(page);
        self.parts[part].memory.needs_write(page)
    }
}

impl PageTables for GroupsMemory {
    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        let (part, page) = self.place(page);
        let space = (part as RegionKey) << REGION_SHIFT;
        let base = self.parts[part].base;
        let seen = self.parts[part].memory.look_around(page, &mut Shifted { visitor, base, space })?;
        Some(Neighbourhood { region: seen.region + space, ..seen })
    }
    fn walk<V: Walk>(&mut self, lruvec: LruvecId, visitor: &mut V) -> bool {
        for (number, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.group == lruvec) {
            let space = (number as RegionKey) << REGION_SHIFT;
            part.memory.walk(lruvec, &mut ShiftedWalk(Shifted { visitor, base: part.base, space }));
        }
        true
    }
}

impl Groups for GroupsMemory {
    fn protection(&self, lruvec: LruvecId) -> Option<Protection> {
        let group = &self.groups[usize::from(lruvec)];
        let usage = self.usage(lruvec);
        // Only children of the target are protected in the cells: what was asked for is in effect (spec: overview
        // §4.5).
        (group.low + group.min > 0).then_some(Protection { usage, min: group.min, low: group.low })
    }
    fn node_frames(&self, _lruvec: LruvecId) -> NodeFrames {
        NodeFrames::default()
    }
}
