//! The simulated machine with frames below it: nothing lost, nothing changed where it is not asked for, and what huge
//! pages, buffers and cached pages do.

use refault_core::page::PageId;
use refault_core::policy::Policy;
use refault_core::{Classic, ClassicParams, Freebsd, FreebsdParams, Mglru, MglruParams};
use refault_sim::machine::Machine;
use refault_sim::machine::memory::state;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;

/// More file pages than memory, read at random by two tasks that also have anonymous memory, one of which ends early.
fn scenario(machine: &str, task: &str, rest: &str) -> String {
    format!(
        r#"
[machine]
cpus = 2
memory = "32M"
swap = "64M"
swap_device = "nvme"
sample = "20ms"
{machine}

[[file]]
name = "data"
size = "48M"

[[task]]
name = "reader"
count = 2
{task}
[[task.workload]]
spec = "zipf:theta=0.7,pages=12288,accesses=60000,kind=fd"
file = "data"
fd_write = 0.1

[[task]]
name = "worker"
{task}
[[task.workload]]
spec = "uniform:pages=3000,accesses=40000,kind=anon,seed=3"

[[task]]
name = "short"
{task}
[[task.workload]]
spec = "uniform:pages=1536,accesses=9000,kind=anon,seed=9"
{rest}
"#
    )
}

fn parsed(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a scenario and checks the frames against the pages at its end.
fn run<P: Policy + Send + 'static>(text: &str, policy: P) -> Report {
    let mut machine = Machine::new(parsed(text).config, policy).expect("the scenario is sound");
    let report = machine.run().expect("nothing is read from files");
    let memory = machine.memory();
    let Some(frames) = &memory.frames else { return report };
    let mut taken = vec![Vec::new(); memory.nodes.len()];
    for page in 0..memory.page_ids() as PageId {
        if memory.has(page, state::RESIDENT) {
            let node = memory.node_of(memory.lruvec[page as usize]);
            let frame = frames.node(node).frame(page).unwrap_or_else(|| panic!("page {page} has no frame"));
            assert_eq!(frames.node(node).page(frame), Some(page));
            taken[node].push(frame);
        } else {
            assert!((0..memory.nodes.len()).all(|node| frames.node(node).frame(page).is_none()));
        }
    }
    let mut held = 0;
    for (node, mut taken) in taken.into_iter().enumerate() {
        let pages = taken.len() as u64;
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len() as u64, pages, "a frame is held by two pages");
        let free = u64::from(frames.node(node).available());
        assert_eq!(free, memory.nodes[node].free);
        held += memory.nodes[node].managed - free - pages;
    }
    let last = report.frames.as_ref().expect("there are frames").last;
    assert_eq!(held, last.held);
    for sample in &report.samples {
        assert_eq!(sample.frames.expect("there are frames").free.free_frames(), sample.free);
    }
    report
}

/// Frames without requests for blocks change nothing but the report.
#[test]
fn frames_alone_change_nothing() {
    let (without, with) = (scenario("", "", ""), scenario("frames = true\nkeep_evicted = \"no\"", "", ""));
    let check = |without: Report, with: Report| {
        let (without, with) = (without.fields(), with.fields());
        assert!(with.len() > without.len());
        assert_eq!(without[..], with[..without.len()]);
    };
    check(run(&without, Mglru::new(MglruParams::default())), run(&with, Mglru::new(MglruParams::default())));
    let classic = || Classic::new(ClassicParams::shadow_lru());
    check(run(&without, classic()), run(&with, classic()));
    let freebsd = || Freebsd::new(FreebsdParams { cached_pages: false, ..FreebsdParams::default() });
    check(run(&without, freebsd()), run(&with, freebsd()));
}

#[test]
fn pages_frames_and_buffers_add_up_under_every_policy() {
    let buffers = "[[buffer]]\nname = \"ring\"\norder = 4\nevery = \"1ms\"\nhold = \"30ms\"\n\
                   [[buffer]]\nname = \"large\"\norder = 9\nstart = \"5ms\"\nevery = \"40ms\"\nhold = \"60ms\"\n";
    for keep in ["no", "shared-pools", "own-pool"] {
        let machine = format!("frames = true\nkeep_evicted = \"{keep}\"");
        for nodes in ["memory = \"32M\"", "nodes = [\"16M\", \"16M\"]"] {
            let text = scenario(&machine, "huge_pages = 0.5", buffers).replace("memory = \"32M\"", nodes);
            let reports = if nodes.starts_with("nodes") {
                vec![run(&text.replace("hold = \"60ms\"", "hold = \"30ms\""), Mglru::new(MglruParams::default()))]
            } else {
                vec![
                    run(&text, Mglru::new(MglruParams::default())),
                    run(&text, Mglru::new(MglruParams::with_refault_distance())),
                    run(&text, Classic::new(ClassicParams::default())),
                    run(&text, Classic::new(ClassicParams::shadow_lru())),
                    run(&text, Freebsd::new(FreebsdParams::default())),
                ]
            };
            for report in reports {
                let frames = report.frames.expect("there are frames");
                let counts = frames.last.counts;
                assert!(counts.thp_fault_alloc + counts.thp_fault_fallback > 0);
                assert!(counts.buffers_asked > 10, "{counts:?}");
                assert!(counts.buffers_failed + counts.buffers_stalled <= counts.buffers_asked);
                let kept = frames.evicted;
                assert_eq!(kept.cached > 0, keep != "no");
                assert_eq!(kept.cached, kept.reactivated + kept.overwritten + kept.discarded + frames.last.cached);
            }
        }
    }
}

/// A page that comes back before its frame was reused is not read: fewer reads, and each saved one is counted.
#[test]
fn cached_pages_save_reads() {
    let text = |keep: &str| scenario(&format!("frames = true\nkeep_evicted = \"{keep}\""), "", "");
    let gone = run(&text("no"), Classic::new(ClassicParams::default())).counters;
    let cached = run(&text("own-pool"), Classic::new(ClassicParams::default())).counters;
    assert_eq!(gone.pages_reactivated, 0);
    assert!(cached.pages_reactivated > 100, "{}", cached.pages_reactivated);
    assert!(cached.file_reads < gone.file_reads, "{} against {}", cached.file_reads, gone.file_reads);
    let as_policy = scenario("frames = true", "", "");
    assert!(run(&as_policy, Freebsd::new(FreebsdParams::default())).counters.pages_cached > 0);
    assert_eq!(run(&as_policy, Classic::new(ClassicParams::default())).counters.pages_cached, 0);
}

/// In empty memory a task of 16 MiB gets all its huge pages with a fault each; the share asked for is kept.
#[test]
fn huge_pages_are_given_while_there_are_blocks() {
    for (share, huge) in [(1.0, 8), (0.5, 4), (0.25, 2), (0.1, 0), (0.0, 0)] {
        let text = format!(
            "[machine]\nmemory = \"64M\"\nframes = true\n[[task]]\nname = \"t\"\nhuge_pages = {share:.2}\n\
             [[task.workload]]\nspec = \"cyclic:pages=4096,accesses=4096,kind=anon\"\n"
        );
        let report = run(&text, Mglru::new(MglruParams::default()));
        let counts = report.frames.expect("there are frames").last.counts;
        assert_eq!((counts.thp_fault_alloc, counts.thp_fault_fallback), (huge, 0), "share {share}");
    }
}

/// Without enough memory for a block above the low mark, a single page is given, and the failure is counted once.
#[test]
fn huge_pages_fall_back() {
    let text = "[machine]\nmemory = \"8M\"\nswap = \"64M\"\nswap_device = \"zram-lz4\"\nframes = true\n[[task]]\n\
                name = \"t\"\nhuge_pages = 1.0\n\
                [[task.workload]]\nspec = \"cyclic:pages=8192,accesses=8192,kind=anon\"\n";
    let report = run(text, Mglru::new(MglruParams::default()));
    let counts = report.frames.expect("there are frames").last.counts;
    assert!(counts.thp_fault_alloc >= 2, "{counts:?}");
    assert!(counts.thp_fault_fallback > 0, "{counts:?}");
    assert_eq!(counts.thp_fault_alloc + counts.thp_fault_fallback, 16, "each 2 MiB asks once");
}

/// Blocks of order 9 are soon not to be had where single pages are scattered; single frames always are.
#[test]
fn large_buffers_fail_before_small_ones() {
    let failed = |order: u32| {
        let buffer =
            format!("[[buffer]]\nname = \"b\"\norder = {order}\nstart = \"50ms\"\nevery = \"5ms\"\nhold = \"5ms\"\n");
        let report = run(&scenario("frames = true", "", &buffer), Classic::new(ClassicParams::default()));
        let counts = report.frames.expect("there are frames").last.counts;
        assert!(counts.buffers_asked > 5);
        counts.buffers_failed as f64 / counts.buffers_asked as f64
    };
    assert_eq!((failed(0), failed(2)), (0.0, 0.0));
    // One in six: it was every second one before dirty pages were written when reclaim meets nothing else.
    assert!(failed(9) > 0.1);
}

#[test]
fn contradictions_are_refused_in_one_line() {
    let refused = |machine: &str, task: &str, rest: &str| {
        let text = scenario(machine, task, rest);
        let error = Scenario::parse(&text, "test.toml").expect_err("must be refused").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("test.toml:"), "{error}");
        error
    };
    let buffer = |fields: &str| format!("[[buffer]]\nname = \"b\"\n{fields}\n");
    let usual = "every = \"1s\"\nhold = \"1s\"";
    for (error, part) in [
        (refused("keep_evicted = \"no\"", "", ""), "frames = true"),
        (refused("frames = true\nkeep_evicted = \"yes\"", "", ""), "own-pool"),
        (refused("", "huge_pages = 0.5", ""), "frames = true"),
        (refused("frames = true", "huge_pages = 1.5", ""), "share from 0 to 1"),
        (refused("frames = true", "huge_pages = -1.0", ""), "share from 0 to 1"),
        (refused("frames = true", "huge_pages = nan", ""), "share from 0 to 1"),
        (refused("", "", &buffer(&format!("order = 1\n{usual}"))), "frames = true"),
        (refused("frames = true", "", &buffer(&format!("order = 13\n{usual}"))), "from 0 to 12"),
        (refused("frames = true", "", &buffer(&format!("order = 1\nnode = 1\n{usual}"))), "no node 1"),
        (refused("frames = true", "", &buffer("order = 1\nevery = \"0s\"\nhold = \"1s\"")), "must not be 0"),
        (refused("frames = true", "", &buffer("order = 9\nevery = \"1ms\"\nhold = \"1s\"")), "half of its node"),
        (refused("frames = true", "", &buffer("order = 9\nevery = \"1ns\"\nhold = \"30m\"")), "half of its node"),
        (refused("frames = true", "", &buffer("order = 1")), "every"),
        (refused("frames = true", "", &buffer(&format!("order = 1\n{usual}\nsize = 3"))), "size"),
        (refused("frames = 7", "", ""), "frames"),
    ] {
        assert!(error.contains(part), "{error}");
    }
}
