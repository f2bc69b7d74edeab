//! kswapd's balance attempts, pass by pass (spec: overview §4.2).

use std::sync::{Arc, Mutex};

use refault_core::memory::Memory;
use refault_core::policy::{
    Admission, BackgroundPass, HitReport, NodeReclaim, PassOutcome, Policy, ProactiveRequest, ReclaimRequest,
};
use refault_core::textbook::Fifo;
use refault_core::{Counters, LruvecId, PageId};
use refault_sim::machine::Machine;
use refault_sim::machine::costs::Costs;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;

/// What a pass is asked for: its priority, and whether anonymous memory is no longer spared.
type Asked = (u8, bool);

/// A policy whose background passes free nothing, unless they may take what is spared.
struct Sparing {
    fifo: Fifo,
    /// Passes say that they spared anonymous memory.
    spares: bool,
    /// Passes that spare nothing free something.
    gives: bool,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Policy for Sparing {
    const HITS: HitReport = HitReport::Kernel;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
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
    fn nodes(&mut self) -> Option<&mut impl NodeReclaim> {
        Some(self)
    }
}

impl NodeReclaim for Sparing {
    fn add_lruvec(&mut self, _parent: Option<LruvecId>) -> LruvecId {
        unreachable!("one node and no groups")
    }
    fn reclaim_nodes<M: Memory>(&mut self, roots: &[LruvecId], memory: &mut M) -> u32 {
        self.fifo.reclaim(&ReclaimRequest { target: roots[0], goal: 32, incoming: None }, memory)
    }
    fn background_pass<M: Memory>(&mut self, pass: &BackgroundPass, memory: &mut M) -> PassOutcome {
        self.asked.lock().unwrap().push((pass.priority, pass.no_cache_trim));
        let spared = self.spares && !pass.no_cache_trim;
        let mut outcome = PassOutcome { priority: pass.priority, cache_trim_failed: spared, ..PassOutcome::default() };
        if self.gives && pass.no_cache_trim {
            let request = ReclaimRequest { target: pass.root, goal: pass.goal as u32, incoming: None };
            outcome.reclaimed = u64::from(self.fifo.reclaim(&request, memory));
            outcome.scanned = outcome.reclaimed;
        }
        outcome
    }
    fn reclaim_proactively<M: Memory>(&mut self, _request: &ProactiveRequest, _memory: &mut M) -> u32 {
        unreachable!("the machine never asks for it")
    }
    fn page_out<M: Memory>(&mut self, _page: PageId, _memory: &mut M) -> bool {
        unreachable!("the machine never asks for it")
    }
    fn write_finished(&mut self, _page: PageId) {}
    fn is_workingset(&self, _page: PageId) -> bool {
        false
    }
}

/// A task that takes memory between the low and the min mark and then pauses: kswapd's affair alone.
const TIGHT: &str = "[machine]\nmemory = \"64M\"\nswap = \"64M\"\nswap_device = \"zram-lz4\"\nduration = \"60s\"\n\
                     [[task]]\nname = \"t\"\n[[task.workload]]\nspec = \"cyclic:pages=16120,accesses=16120,kind=anon\"\n\
                     [[task.workload]]\nspec = \"cyclic:pages=1,accesses=1,kind=anon\"\npause = \"100s\"\n";

fn run(spares: bool, gives: bool) -> (Vec<Asked>, Report) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let policy = Sparing { fifo: Fifo::default(), spares, gives, asked: Arc::clone(&asked) };
    let scenario = Scenario::parse(TIGHT, "tight.toml").unwrap_or_else(|error| panic!("{error}"));
    let report = Machine::new(scenario.config, policy).unwrap().run().unwrap();
    assert_eq!(report.statistics.pgscan[1], 0, "no direct reclaim");
    let asked = asked.lock().unwrap().clone();
    (asked, report)
}

/// The passes of a round: priority 12 to 1, and never 0.
fn round(no_cache_trim: bool) -> Vec<Asked> {
    (1..=12).rev().map(|priority| (priority, no_cache_trim)).collect()
}

#[test]
fn an_attempt_that_spared_anonymous_memory_in_vain_begins_again_without_sparing_it() {
    let (asked, report) = run(true, false);
    let attempt = [round(false), round(true)].concat();
    assert!(asked.len() >= attempt.len());
    for (at, passes) in asked.chunks(attempt.len()).enumerate() {
        assert_eq!(passes, attempt, "attempt {at}");
    }
    // Both rounds are one attempt, and one failure; at 16 the node is given up.
    assert_eq!((asked.len() / attempt.len(), report.pageoutrun, report.statistics.kswapd_passes), (16, 16, 16 * 24));
}

#[test]
fn an_attempt_that_spared_nothing_has_one_round() {
    let (asked, report) = run(false, false);
    for (at, passes) in asked.chunks(12).enumerate() {
        assert_eq!(passes, round(false), "attempt {at}");
    }
    assert_eq!((report.pageoutrun, report.statistics.kswapd_passes), (16, 16 * 12));
    // It begins again as soon as another thread could have run, but for the last time.
    assert_eq!(report.statistics.kswapd_slept, 15 * (1_000 + Costs::default().context_switch));
}

#[test]
fn what_was_spared_balances_the_node_in_the_second_round() {
    let (asked, report) = run(true, true);
    assert_eq!(asked[..12], round(false));
    assert_eq!(asked[12], (12, true));
    // It freed what was wanted: the node is balanced, and kswapd sleeps.
    assert_eq!((asked.len(), report.pageoutrun), (13, 1));
    assert!(report.statistics.pgsteal[0] > 0);
}
