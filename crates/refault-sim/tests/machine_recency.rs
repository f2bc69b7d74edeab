//! What mappings without recency leave alone: reference checks, walks, neighbours and the mark of a fault (spec:
//! overview §2; mglru §4, §7, §8).

use std::sync::{Arc, Mutex};

use refault_core::memory::{LookAround, Memory, PageTables, RegionKey, Walk};
use refault_core::mglru::{Mglru, MglruParams};
use refault_core::policy::{Admission, HitReport, Policy, ReclaimRequest};
use refault_core::textbook::Fifo;
use refault_core::{Counters, PageId};
use refault_sim::machine::Machine;
use refault_sim::machine::costs::Costs;
use refault_sim::machine::device::{Device, DeviceModel};
use refault_sim::machine::group::Groups;
use refault_sim::machine::memory::{MachineMemory, entry};
use refault_sim::machine::node::{Node, Watermarks};
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;
use refault_trace::Source;

const PAGES: u32 = 600;

/// A file that two programs map: the first reads at random, the second as usual. All of it is in memory, and both
/// have just touched every page.
fn mapped_twice() -> MachineMemory {
    let node = Node::new(10_000, Watermarks::of(10_000, 10_000, 0, 10));
    let device = Device::new(DeviceModel::preset("ramdisk").unwrap());
    let mut memory = MachineMemory::new(vec![node], Groups::new(true), device, None, 0, Costs::default());
    let file = memory.add_segment(PAGES, true).unwrap();
    for _ in 0..2 {
        let space = memory.add_address_space(0);
        memory.add_mapping(space, file, false);
    }
    memory.seal();
    for page in 0..PAGES {
        memory.insert(page, 0, 0);
        memory.map(0, page, false, true);
        memory.map(1, page, false, true);
    }
    memory.mappings[0].recency = false;
    memory
}

/// Pages whose accessed bit is set in a mapping.
fn young(memory: &MachineMemory, mapping: usize) -> Vec<PageId> {
    let entries = memory.mappings[mapping].entries.iter().enumerate();
    entries.filter(|(_, bits)| **bits & entry::YOUNG != 0).map(|(page, _)| page as PageId).collect()
}

/// What a walk or a look around is shown; it takes everything.
#[derive(Default)]
struct Seen {
    spaces: u32,
    regions: Vec<RegionKey>,
    pages: Vec<PageId>,
}

impl Walk for Seen {
    fn starts(&mut self) {
        self.spaces += 1;
    }
    fn forced(&self) -> bool {
        true
    }
    fn enters(&mut self, region: RegionKey, _accessed: Option<bool>, _forced: bool) -> bool {
        self.regions.push(region);
        true
    }
    fn eligible(&mut self, _page: PageId) -> bool {
        true
    }
    fn young(&mut self, page: PageId) {
        self.pages.push(page);
    }
    fn leaves(&mut self, _region: RegionKey, _entries: u32, _young: u32) {}
}

impl LookAround for Seen {
    fn eligible(&mut self, _page: PageId) -> bool {
        true
    }
    fn young(&mut self, page: PageId) {
        self.pages.push(page);
    }
}

#[test]
fn a_reference_check_counts_the_mapping_with_recency_alone() {
    let mut memory = mapped_twice();
    assert_eq!(memory.take_references(7).mappings, 1);
    assert_eq!(memory.take_references(7).mappings, 0);
    assert!(young(&memory, 0).contains(&7), "the other bit is left as it is");
}

/// Spec: mglru §7, mapping filter: mappings without recency are skipped.
#[test]
fn a_forced_walk_passes_over_a_mapping_that_is_read_at_random() {
    let mut memory = mapped_twice();
    let mut seen = Seen::default();
    assert!(memory.walk(0, &mut seen));
    assert_eq!(seen.spaces, 2, "both programs are visited");
    assert_eq!(seen.pages, (0..PAGES).collect::<Vec<_>>(), "each page once");
    let regions: Vec<RegionKey> = (0..2).map(|region| memory.mappings[1].region_base + region).collect();
    assert_eq!(seen.regions, regions);
    assert_eq!((young(&memory, 0).len(), young(&memory, 1).len()), (PAGES as usize, 0));
    assert_eq!(memory.mappings[0].regions, [true, true], "nor are the bits of its regions taken");
}

/// Spec: mglru §8: the window is one of the mapping through which the page was found young, and no check finds one
/// young through a mapping without recency.
#[test]
fn neighbours_are_those_of_the_mapping_with_recency() {
    let mut memory = mapped_twice();
    // The second program has touched every other page only.
    memory.mappings[1].entries.iter_mut().skip(1).step_by(2).for_each(|bits| *bits &= !entry::YOUNG);
    assert_eq!(memory.take_references(100).mappings, 1);
    let mut seen = Seen::default();
    let found = memory.look_around(100, &mut seen).expect("a window");
    assert_eq!(found.region, memory.mappings[1].region_base);
    assert_eq!(seen.pages, (68..132).step_by(2).filter(|page| *page != 100).collect::<Vec<_>>());
    assert_eq!((found.entries, found.young), (64, 32));
    assert_eq!(young(&memory, 0).len(), PAGES as usize, "the other mapping keeps its bits");
    // With nothing but such mappings there is no window.
    memory.mappings[1].recency = false;
    assert_eq!(memory.look_around(100, &mut seen), None);
}

/// A program with a file of 4000 pages, without readahead, which pauses when it has done its work.
fn scenario(machine: &str, workload: &str, random: bool, events: &str) -> Scenario {
    let text = format!(
        "[machine]\nduration = \"2s\"\nfault_around = \"4K\"\nreadahead = \"0\"\n{machine}\n\
         [[file]]\nname = \"data\"\nsize = \"4000p\"\n\
         [[task]]\nname = \"t\"\n[[task.workload]]\nfile = \"data\"\nspec = \"{workload}\"\nrandom = {random}\n\
         [[task.workload]]\nspec = \"cyclic:pages=1,accesses=1,kind=anon\"\npause = \"10s\"\n{events}"
    );
    Scenario::parse(&text, "s.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// A quarter of the file, in whole batches of 31 pages.
const QUARTER: &str = "cyclic:pages=4000,accesses=992,kind=mapped";

fn mglru(scenario: Scenario) -> Report {
    Machine::new(scenario.config, Mglru::new(MglruParams::default())).unwrap().run().unwrap()
}

/// File pages of the root's generations in a listing, oldest first.
fn file_pages(report: &Report, listing: usize) -> Vec<u64> {
    let lines = report.listings[listing].text.lines().filter(|line| line.split_whitespace().count() == 4);
    lines.map(|line| line.split_whitespace().nth(3).unwrap().parse().expect("pages")).collect()
}

/// Spec: mglru §4: what a fault brings in is young; on a mapping without recency it comes in as `read()` brings it.
#[test]
fn a_fault_on_a_mapping_that_is_read_at_random_leaves_no_mark() {
    let run = |random| mglru(scenario("memory = \"64M\"", QUARTER, random, "[[event]]\nat = \"1s\"\nlist = true\n"));
    let (usual, random) = (file_pages(&run(false), 0), file_pages(&run(true), 0));
    assert_eq!((usual.iter().sum::<u64>(), usual.last()), (992, Some(&992)), "{usual:?}");
    assert_eq!((random.iter().sum::<u64>(), random.last()), (992, Some(&0)), "{random:?}");
}

/// The same for `+` of the debugging interface: a walk that it forces promotes nothing (spec: mglru §7, §15).
#[test]
fn a_forced_walk_of_the_machine_promotes_nothing_that_is_read_at_random() {
    let run = |random| {
        let mut scenario =
            scenario("memory = \"64M\"", QUARTER, random, "[[event]]\nat = \"1s\"\nlru_gen = \"+ 0 0 max\"\n");
        // The pages are there already, and old, when they are touched through the mapping.
        let mut phase = scenario.config.tasks[0].phases[0].clone();
        phase.workload = Source::workload(QUARTER.replace("mapped", "fd").parse().unwrap());
        scenario.config.tasks[0].phases.insert(0, phase);
        mglru(scenario).counters
    };
    let (usual, random) = (run(false), run(true));
    assert_eq!((usual.walk_promoted, random.walk_promoted), (992, 0));
    assert!(usual.walk_entries >= 4000 && random.walk_entries < 1000, "{} {}", usual.walk_entries, random.walk_entries);
}

/// Queues pages as they come, and notes whether they came in by a fault that marks them.
struct Watched {
    fifo: Fifo,
    /// Pages without the mark, and with.
    admitted: Arc<Mutex<[u64; 2]>>,
}

impl Policy for Watched {
    const HITS: HitReport = HitReport::Kernel;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
        self.admitted.lock().unwrap()[usize::from(admission.in_fault)] += 1;
        self.fifo.admit(page, admission, memory);
    }
    fn freed(&mut self, page: PageId) {
        self.fifo.freed(page);
    }
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        self.fifo.reclaim(request, memory)
    }
    fn grow(&mut self, pages: usize) {
        self.fifo.grow(pages);
    }
    fn counters(&self) -> Counters {
        self.fifo.counters()
    }
    fn metadata_bytes(&self) -> usize {
        self.fifo.metadata_bytes()
    }
}

/// File pages admitted without and with the mark, and the report.
fn watched(scenario: Scenario) -> ([u64; 2], Report) {
    let admitted = Arc::new(Mutex::new([0; 2]));
    let policy = Watched { fifo: Fifo::default(), admitted: Arc::clone(&admitted) };
    let report = Machine::new(scenario.config, policy).unwrap().run().unwrap();
    let counts = *admitted.lock().unwrap();
    (counts, report)
}

#[test]
fn the_mark_is_the_same_for_pages_whose_frames_were_not_reused() {
    let machine = "memory = \"8M\"\nframes = true\nkeep_evicted = \"shared-pools\"";
    let workload = "zipf:theta=0.5,pages=4000,accesses=20000,kind=mapped";
    for random in [false, true] {
        let (admitted, report) = watched(scenario(machine, workload, random, ""));
        let back = report.frames.unwrap().evicted.reactivated;
        assert!(back > 100, "{back} pages came back without a read");
        assert!(admitted[usize::from(!random)] > 2000, "{admitted:?}");
        assert_eq!(admitted[usize::from(random)], 0, "random {random}: {admitted:?}");
    }
}

/// Spec: mglru §4: the mark covers every page added during the fault, those read around and ahead too.
#[test]
fn what_a_fault_reads_around_and_ahead_is_marked_with_it() {
    let machine = "memory = \"64M\"";
    let mut all = scenario(machine, "cyclic:pages=4000,accesses=4000,kind=mapped", false, "");
    all.config.readahead = 32;
    let (admitted, report) = watched(all);
    assert!(report.counters.file_reads >= 4000 && report.counters.pgmajfault < 400, "it was read ahead");
    assert_eq!(admitted, [0, 4000]);
}
