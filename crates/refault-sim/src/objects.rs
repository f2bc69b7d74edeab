//! Objects of any size against a policy under a limit in bytes: objects come and go whole.
//!
//! One missing object: objects are evicted until it fits, then it is admitted with its size. An object larger than memory
//! is a miss and stays out, as does one that the policy keeps out. An access that finds its object larger than it came in
//! is a miss: the object leaves, and comes in anew. One that finds it smaller is a hit, and the object keeps its room. A
//! miss weighs the bytes that its own access stands for.
//!
//! Cost: 9 bytes per object id beside the policy's.
//!
//! ```
//! use refault_core::policy::PolicySpec;
//! use refault_sim::objects::ObjectReplay;
//!
//! let mut replay = ObjectReplay::new(&PolicySpec::parse("lru")?, 3, 10).expect("it holds objects");
//! let hits = [(0, 6), (1, 4), (0, 6), (2, 4), (0, 6), (1, 4)].map(|(object, bytes)| replay.access(object, bytes));
//! assert_eq!(hits, [false, false, true, false, true, false]); // object 1 was evicted for object 2
//! assert_eq!((replay.outcome().misses, replay.bytes_missed()), (4, 6 + 4 + 4 + 4));
//! # Ok::<(), refault_core::policy::PolicyError>(())
//! ```

use refault_core::memory::{Eviction, References};
use refault_core::policy::registry::{Visitor, visit_objects};
use refault_core::policy::room::MAX_FRUITLESS_CALLS;
use refault_core::policy::{Admission, DynPolicy, HitReport, PolicySpec, ReclaimRequest};
use refault_core::{Memory, PageId, PageType, Policy, Shadow};

use crate::replay::Outcome;

/// Bytes of a page, in which policies are told their capacity.
const PAGE_BYTES: u64 = 4096;

/// Objects that are in memory, with their sizes.
#[derive(Clone, Debug)]
pub struct ObjectMemory {
    /// Bytes of each object in memory, and one more; 0 if it is not.
    sizes: Vec<u64>,
    accessed: Vec<bool>,
    used: u64,
    objects: usize,
}

impl ObjectMemory {
    fn free(&mut self, object: PageId) {
        self.used -= std::mem::take(&mut self.sizes[object as usize]) - 1;
        self.accessed[object as usize] = false;
        self.objects -= 1;
    }
}

impl Memory for ObjectMemory {
    fn take_references(&mut self, object: PageId) -> References {
        let accessed = std::mem::take(&mut self.accessed[object as usize]);
        References { mappings: u32::from(accessed), ..References::default() }
    }

    fn evict(&mut self, object: PageId, _shadow: Shadow) -> Eviction {
        self.free(object);
        Eviction::Freed { pages_written: 0 }
    }

    fn is_resident(&self, object: PageId) -> bool {
        self.sizes[object as usize] > 0
    }
}

/// A policy, objects and a limit in bytes.
pub struct ObjectReplay {
    policy: Box<dyn DynPolicy<ObjectMemory> + Send>,
    memory: ObjectMemory,
    limit: u64,
    accesses: u64,
    misses: u64,
    bytes: u64,
    bytes_missed: u64,
    too_large: u64,
}

struct Boxed;

impl Visitor for Boxed {
    type Output = Box<dyn DynPolicy<ObjectMemory> + Send>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output {
        Box::new(policy)
    }
}

impl ObjectReplay {
    /// Empty memory of `limit` bytes for objects with ids below `objects`; `None` if the policy cannot hold objects of any
    /// size.
    pub fn new(spec: &PolicySpec, objects: usize, limit: u64) -> Option<ObjectReplay> {
        let mut policy = visit_objects(spec, Boxed)?;
        policy.grow(objects);
        policy.set_capacity((limit / PAGE_BYTES) as usize);
        let memory = ObjectMemory { sizes: vec![0; objects], accessed: vec![false; objects], used: 0, objects: 0 };
        Some(ObjectReplay { policy, memory, limit, accesses: 0, misses: 0, bytes: 0, bytes_missed: 0, too_large: 0 })
    }

    /// Replays an access to an object of `bytes`; whether it hit.
    pub fn access(&mut self, object: PageId, bytes: u64) -> bool {
        self.accesses += 1;
        self.bytes += bytes;
        if self.memory.sizes[object as usize] > bytes {
            match self.policy.hits() {
                HitReport::AccessedBit => self.memory.accessed[object as usize] = true,
                _ => self.policy.accessed(object, &mut self.memory),
            }
            return true;
        }
        if self.memory.is_resident(object) {
            self.memory.free(object);
            self.policy.freed(object);
        }
        self.misses += 1;
        self.bytes_missed += bytes;
        if bytes > self.limit {
            self.too_large += 1;
            return false;
        }
        let admission = Admission::read(PageType::File).of_bytes(bytes);
        let needed = (self.memory.used + bytes).saturating_sub(self.limit);
        let sizes = &self.memory.sizes;
        if needed > 0 && self.policy.keeps_out(&admission, needed, &|object| sizes[object as usize].saturating_sub(1)) {
            return false;
        }
        let request = ReclaimRequest { target: 0, goal: 1, incoming: Some(object) };
        let mut fruitless = 0;
        while self.memory.used + bytes > self.limit && fruitless <= MAX_FRUITLESS_CALLS {
            fruitless = if self.policy.reclaim(&request, &mut self.memory) > 0 { 0 } else { fruitless + 1 };
        }
        self.memory.sizes[object as usize] = bytes + 1;
        self.memory.used += bytes;
        self.memory.objects += 1;
        self.policy.admit(object, &admission, &mut self.memory);
        false
    }

    /// What happened so far, counted in objects.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            accesses: self.accesses,
            hits: self.accesses - self.misses,
            misses: self.misses,
            counters: self.policy.counters(),
            resident: self.memory.objects,
            read_ahead: None,
        }
    }

    /// Bytes of all accesses.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of those that missed.
    pub fn bytes_missed(&self) -> u64 {
        self.bytes_missed
    }

    /// Bytes in memory.
    pub fn bytes_held(&self) -> u64 {
        self.memory.used
    }

    /// Accesses to objects larger than memory.
    pub fn too_large(&self) -> u64 {
        self.too_large
    }

    /// Bytes of metadata: the policy's and the memory's.
    pub fn metadata_bytes(&self) -> usize {
        self.policy.metadata_bytes() + self.memory.sizes.len() * (size_of::<u64>() + 1)
    }
}
