//! The frame allocator against a slow model that follows the rules one by one (spec: freebsd §4), step by step.

use std::collections::{BTreeSet, HashMap, VecDeque};

use proptest::prelude::*;
use refault_core::frames::{CachedFrames, Frame, FrameAllocator, FreePool, FreePools, Placement};

const POOLS: [FreePool; 3] = [FreePool::Default, FreePool::Direct, FreePool::Cache];

/// Queues as plain deques, a pool number per frame, everything found by searching.
struct Model {
    pools: FreePools,
    largest: u32,
    label: Vec<usize>,
    queues: Vec<Vec<VecDeque<Frame>>>,
}

impl Model {
    fn new(frames: u32, pools: FreePools, largest: u32) -> Model {
        let queues = vec![vec![VecDeque::new(); largest as usize + 1]; pools.count()];
        let mut model = Model { pools, largest, label: vec![0; frames as usize], queues };
        // Boot frees one frame after the other.
        (0..frames).for_each(|frame| model.free(frame, 0));
        model
    }

    fn relabel(&mut self, first: Frame, order: u32, pool: usize) {
        (first..first + (1 << order)).for_each(|frame| self.label[frame as usize] = pool);
    }

    fn allocate(&mut self, pool: FreePool, order: u32) -> Option<Frame> {
        let pool = self.pools.index(pool);
        for o in order..=self.largest {
            if let Some(first) = self.queues[pool][o as usize].pop_front() {
                self.split(first, o, pool, order);
                return Some(first);
            }
        }
        for o in (order..=self.largest).rev() {
            for other in 0..self.pools.count() {
                if let Some(first) = self.queues[other][o as usize].pop_front() {
                    self.relabel(first, o, pool);
                    self.split(first, o, pool, order);
                    return Some(first);
                }
            }
        }
        None
    }

    fn split(&mut self, first: Frame, mut o: u32, pool: usize, order: u32) {
        while o > order {
            o -= 1;
            self.queues[pool][o as usize].push_front(first + (1 << o));
        }
    }

    fn free(&mut self, mut first: Frame, mut order: u32) {
        let pool = self.label[first as usize];
        while order < self.largest {
            let buddy = first ^ (1 << order);
            let found = (0..self.pools.count()).find_map(|other| {
                let at = self.queues[other][order as usize].iter().position(|b| *b == buddy)?;
                Some((other, at))
            });
            let Some((other, at)) = found else { break };
            self.queues[other][order as usize].remove(at);
            self.relabel(buddy, order, pool);
            first = first.min(buddy);
            order += 1;
        }
        self.queues[pool][order as usize].push_back(first);
    }

    fn unfree(&mut self, frame: Frame) -> bool {
        for pool in 0..self.pools.count() {
            for order in 0..=self.largest {
                let queue = &mut self.queues[pool][order as usize];
                let Some(at) = queue.iter().position(|b| (*b..*b + (1 << order)).contains(&frame)) else { continue };
                let mut first = queue.remove(at).unwrap();
                for half in (0..order).rev() {
                    let upper = first + (1 << half);
                    if frame < upper {
                        self.queues[pool][half as usize].push_front(upper);
                    } else {
                        self.queues[pool][half as usize].push_front(first);
                        first = upper;
                    }
                }
                return true;
            }
        }
        false
    }

    fn free_set(&self) -> BTreeSet<Frame> {
        let mut set = BTreeSet::new();
        for (order, first) in self.blocks() {
            for frame in first..first + (1 << order) {
                assert!(set.insert(frame), "frame {frame} is in two free blocks");
            }
        }
        set
    }

    fn blocks(&self) -> impl Iterator<Item = (u32, Frame)> + '_ {
        self.queues.iter().flat_map(|pool| {
            pool.iter().enumerate().flat_map(|(order, queue)| queue.iter().map(move |first| (order as u32, *first)))
        })
    }
}

fn queues_of(allocator: &FrameAllocator, pools: FreePools) -> Vec<Vec<VecDeque<Frame>>> {
    let distinct = POOLS.iter().filter(|pool| pools.index(**pool) != 0 || **pool == FreePool::Default);
    let mut queues = vec![Vec::new(); pools.count()];
    for pool in distinct {
        queues[pools.index(*pool)] =
            (0..=allocator.largest_order()).map(|order| allocator.queue(*pool, order).collect()).collect();
    }
    queues
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize, u32),
    Free(usize),
    Relabel(usize, usize),
    Unfree(Frame),
    Contiguous { frames: u32, from: Frame, length: u32, align: u32, boundary: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3usize, prop_oneof![4 => Just(0u32), 1 => 0..5u32]).prop_map(|(p, o)| Step::Allocate(p, o)),
        5 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), 0..3usize).prop_map(|(at, pool)| Step::Relabel(at, pool)),
        2 => (0..300u32).prop_map(Step::Unfree),
        1 => (1..40u32, 0..200u32, 1..300u32, 0..4u32, 0..6u32).prop_map(|(frames, from, length, align, boundary)| {
            Step::Contiguous { frames, from, length, align: 1 << align, boundary: if boundary < 3 { 0 } else { 1 << boundary } }
        }),
    ];
    prop::collection::vec(step, 1..250)
}

fn pool_sets() -> impl Strategy<Value = FreePools> {
    (any::<bool>(), any::<bool>()).prop_map(|(direct, cache)| FreePools { direct, cache })
}

proptest! {
    #[test]
    fn allocator_follows_the_model(frames in 1..300u32, largest in 0..7u32, pools in pool_sets(), steps in steps()) {
        let mut allocator = FrameAllocator::new(frames, pools, largest);
        let mut model = Model::new(frames, pools, largest);
        let mut held: Vec<(Frame, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(pool, order) => {
                    let order = order.min(largest);
                    let got = allocator.allocate(POOLS[pool], order);
                    prop_assert_eq!(got, model.allocate(POOLS[pool], order));
                    if let Some(first) = got {
                        for frame in first..first + (1 << order) {
                            prop_assert_eq!(pools.index(allocator.pool(frame)), pools.index(POOLS[pool]));
                        }
                        held.push((first, order));
                    }
                }
                Step::Free(at) if !held.is_empty() => {
                    let (first, order) = held.swap_remove(at % held.len());
                    allocator.free(first, order);
                    model.free(first, order);
                }
                Step::Relabel(at, pool) if !held.is_empty() => {
                    let (first, order) = held[at % held.len()];
                    allocator.set_pool(first, order, POOLS[pool]);
                    model.relabel(first, order, pools.index(POOLS[pool]));
                }
                Step::Unfree(frame) if frame < frames => {
                    let got = allocator.unfree(frame);
                    prop_assert_eq!(got, model.unfree(frame));
                    prop_assert_eq!(got, !held.iter().any(|(f, o)| (*f..*f + (1 << o)).contains(&frame)));
                    if got {
                        held.push((frame, 0));
                    }
                }
                Step::Contiguous { frames: wanted, from, length, align, boundary } => {
                    let placement = Placement { range: from..from + length, alignment: align, boundary };
                    let free = model.free_set();
                    if let Some(first) = allocator.allocate_contiguous(wanted, &placement) {
                        let end = first + wanted;
                        prop_assert!(first >= from && end <= from + length && first % align == 0);
                        prop_assert!(boundary == 0 || first / boundary == (end - 1) / boundary);
                        for frame in first..end {
                            prop_assert!(free.contains(&frame), "{} was not free", frame);
                            prop_assert_eq!(allocator.pool(frame), FreePool::Default);
                            held.push((frame, 0));
                        }
                    } else if wanted <= 1 << largest {
                        // Not found means that no free block that starts rightly is large enough.
                        let order = wanted.next_power_of_two().ilog2();
                        prop_assert!(!model.blocks().any(|(o, b)| o >= order && b >= from
                            && b + wanted <= from + length && b % align == 0
                            && (boundary == 0 || b / boundary == (b + wanted - 1) / boundary)));
                    }
                    // The model has no such search: it takes over what is free now.
                    model.queues = queues_of(&allocator, pools);
                    for (order, first) in model.blocks().collect::<Vec<_>>() {
                        let label = pools.index(allocator.pool(first));
                        model.relabel(first, order, label);
                    }
                    for (first, order) in &held {
                        for frame in *first..first + (1 << order) {
                            model.label[frame as usize] = pools.index(allocator.pool(frame));
                        }
                    }
                }
                _ => {}
            }
            prop_assert_eq!(queues_of(&allocator, pools), model.queues.clone());
            // Nothing lost, nothing handed out twice, all frames of a free block in one pool, coalescing complete.
            let free = model.free_set();
            prop_assert_eq!(free.len() as u32, allocator.free_frames());
            let mut taken = BTreeSet::new();
            for (first, order) in &held {
                for frame in *first..first + (1 << order) {
                    prop_assert!(taken.insert(frame) && !free.contains(&frame), "frame {} handed out twice", frame);
                    prop_assert!(!allocator.is_free(frame));
                }
            }
            prop_assert_eq!(taken.len() + free.len(), frames as usize);
            let blocks: BTreeSet<_> = model.blocks().collect();
            for (order, first) in &blocks {
                prop_assert_eq!(first % (1 << order), 0);
                prop_assert!(*order == largest || !blocks.contains(&(*order, first ^ (1 << order))));
                for frame in *first..first + (1 << order) {
                    prop_assert_eq!(allocator.pool(frame), allocator.pool(*first));
                    prop_assert!(allocator.is_free(frame));
                }
            }
        }
        // Giving everything back leaves the blocks of the start.
        held.into_iter().for_each(|(first, order)| allocator.free(first, order));
        let start = FrameAllocator::new(frames, pools, largest);
        prop_assert_eq!(allocator.fragmentation(), start.fragmentation());
    }

    /// Pages by name: a model of two maps.
    #[test]
    fn cached_frames_follow_the_model(pools in pool_sets(), ops in prop::collection::vec((0..12u8, 0..40u32), 1..300)) {
        let mut frames = CachedFrames::new(24, pools);
        frames.grow(40);
        let (mut resident, mut cached) = (HashMap::new(), HashMap::new());
        let mut blocks = Vec::new();
        for (op, page) in ops {
            let lost = |cached: &mut HashMap<u32, Frame>, range: std::ops::Range<Frame>| {
                cached.retain(|_, frame| !range.contains(frame));
            };
            match op {
                0..=2 if !resident.contains_key(&page) => {
                    let back = frames.reactivate(page);
                    prop_assert_eq!(back, cached.remove(&page));
                    let got = back.or_else(|| frames.allocate(page));
                    prop_assert_eq!(got.is_none(), resident.len() + blocks.len() * 2 == 24 || got.is_none());
                    if let Some(frame) = got {
                        lost(&mut cached, frame..frame + 1);
                        resident.insert(page, frame);
                    }
                }
                3 | 4 if resident.contains_key(&page) => {
                    frames.cache(page);
                    cached.insert(page, resident.remove(&page).unwrap());
                }
                5 if resident.contains_key(&page) => {
                    frames.free(page);
                    resident.remove(&page);
                }
                6 if cached.contains_key(&page) => {
                    frames.discard(page);
                    cached.remove(&page);
                }
                7 if page % 2 == 0 => {
                    if let Some(first) = frames.allocate_block(FreePool::Direct, 1) {
                        lost(&mut cached, first..first + 2);
                        blocks.push(first);
                    }
                }
                7 => if let Some(first) = blocks.pop() { frames.free_block(first, 1) },
                // A page moves, and its frame is free.
                8 if resident.contains_key(&page) => {
                    if let Some(to) = frames.allocate_block(FreePool::Default, 0) {
                        lost(&mut cached, to..to + 1);
                        frames.relocate(page, to);
                        frames.free_block(resident.insert(page, to).unwrap(), 0);
                    }
                }
                11 => {
                    let other = (page * 11 + 3) % 40;
                    if page != other && resident.contains_key(&page) && resident.contains_key(&other) {
                        frames.exchange(page, other);
                        let (one, two) = (resident[&page], resident[&other]);
                        resident.extend([(page, two), (other, one)]);
                    }
                }
                // Some pages, in any order, have the same frames in order.
                10 => {
                    let mut some: Vec<u32> = resident.keys().copied().filter(|other| other % 5 != page % 5).collect();
                    some.sort_unstable_by_key(|other| other * 7 % 41);
                    let mut theirs: Vec<Frame> = some.iter().map(|other| resident[other]).collect();
                    theirs.sort_unstable();
                    frames.sort(&some);
                    resident.extend(some.into_iter().zip(theirs));
                }
                9 if page < 24 => {
                    let in_use = resident.values().any(|frame| *frame == page)
                        || blocks.iter().any(|first| (*first..*first + 2).contains(&page));
                    prop_assert_eq!(frames.take(page), !in_use);
                    if !in_use {
                        lost(&mut cached, page..page + 1);
                        frames.free_block(page, 0);
                    }
                }
                _ => {}
            }
            prop_assert_eq!(frames.cached() as usize, cached.len());
            prop_assert_eq!(frames.available() as usize, 24 - resident.len() - 2 * blocks.len());
            for page in 0..40 {
                prop_assert_eq!(frames.frame(page), resident.get(&page).copied());
                prop_assert_eq!(frames.is_cached(page), cached.contains_key(&page));
            }
            let c = frames.counters();
            prop_assert_eq!(c.cached, c.reactivated + c.overwritten + c.discarded + u64::from(frames.cached()));
        }
    }
}

/// The run worked out in spec: freebsd §5: one block of 16; allocate 8, cache 0 2 4 6, allocate 4, free 1.
#[test]
fn retiring_the_cache_pool_worked_example() {
    let run = |pools: FreePools| {
        let mut frames = CachedFrames::new(16, pools);
        frames.grow(16);
        let first: Vec<_> = (0..8).map(|page| frames.allocate(page).unwrap()).collect();
        assert_eq!(first, [0, 1, 2, 3, 4, 5, 6, 7]);
        [0, 2, 4, 6].into_iter().for_each(|page| frames.cache(page));
        let next: Vec<_> = (8..12).map(|page| frames.allocate(page).unwrap()).collect();
        (frames, next)
    };
    let blocks = |frames: &CachedFrames| {
        (0..=4u32)
            .flat_map(|order| {
                let a = frames.allocator();
                let pools: &[FreePool] =
                    if a.pools().cache { &[FreePool::Default, FreePool::Cache] } else { &[FreePool::Default] };
                pools.iter().flat_map(move |pool| a.queue(*pool, order)).map(move |first| (order, first))
            })
            .collect::<Vec<_>>()
    };

    let (mut before, next) = run(FreePools::THREE);
    assert_eq!(next, [8, 9, 10, 11]);
    assert_eq!(before.cached(), 4);
    assert_eq!(blocks(&before), [(0, 0), (0, 2), (0, 4), (0, 6), (2, 12)]);
    let fragmentation = before.allocator().fragmentation();
    assert_eq!((fragmentation.unusable_free_index(3), fragmentation.unusable_free_index(2)), (1.0, 0.5));
    before.free(1);
    assert_eq!(blocks(&before)[3..], [(1, 0), (2, 12)]);
    assert_eq!(before.allocator().queue(FreePool::Default, 1).collect::<Vec<_>>(), [0], "the freed page's pool wins");
    assert!(before.is_cached(0), "still cached in the default pool");

    let (mut after, next) = run(FreePools::TWO);
    assert_eq!(next, [0, 2, 4, 6]);
    assert_eq!(after.cached(), 0);
    assert_eq!(blocks(&after), [(3, 8)]);
    let fragmentation = after.allocator().fragmentation();
    assert_eq!((fragmentation.unusable_free_index(3), fragmentation.unusable_free_index(2)), (0.0, 0.0));
    after.free(1);
    assert_eq!(blocks(&after), [(0, 1), (3, 8)]);
}
