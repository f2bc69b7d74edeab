//! The monitor beside the machine: what it sees, what its schemes do, and what is refused.

use refault_core::Counters;
use refault_core::classic::{Classic, ClassicParams};
use refault_core::mglru::{Mglru, MglruParams, Version};
use refault_core::policy::Policy;
use refault_core::textbook::Fifo;
use refault_sim::machine::Machine;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;

/// A task that fills 32 MiB and then lives in an eighth of it for four seconds, with memory to spare.
fn scenario(rest: &str) -> String {
    format!(
        "[machine]\nduration = \"3.9s\"\ncpus = 2\nmemory = \"128M\"\nswap = \"128M\"\nswap_device = \"zram-lz4\"\n\
         [[group]]\nname = \"/g\"\nmax = \"128M\"\n\
         [[task]]\nname = \"t\"\ngroup = \"/g\"\ncpu = \"10us\"\n\
         [[task.workload]]\nspec = \"cyclic:pages=8192,accesses=8192,kind=anon\"\n\
         [[task.workload]]\nspec = \"uniform:pages=1024,accesses=400000,kind=anon\"\n{rest}"
    )
}

fn run<P: Policy + Send + 'static>(rest: &str, policy: P) -> Result<Report, String> {
    let scenario = Scenario::parse(&scenario(rest), "s.toml").map_err(|error| error.to_string())?;
    Ok(Machine::new(scenario.config, policy)?.run().expect("no trace is read"))
}

fn classic() -> Classic {
    Classic::new(ClassicParams::default())
}

const PAGE_OUT: &str = "[monitor]\n[[monitor.schemes]]\naction = \"pageout\"\n\
                        access_pattern = { nr_accesses = { max = 0 }, age = { min = \"1 s\" } }\n";

#[test]
fn cold_memory_leaves_and_hot_memory_stays() {
    let report = run(PAGE_OUT, classic()).unwrap();
    let usage = report.groups[1].usage;
    assert!((1024..2600).contains(&usage), "{usage} of 8192 pages are left");
    assert!(report.counters.pswpout >= 5500, "{}", report.counters.pswpout);
    let monitor = report.monitor.unwrap();
    let statistics = monitor.schemes[0].statistics();
    assert_eq!(statistics.sz_applied / 4096, report.counters.pswpout, "each page once, and no other reclaim");
    assert_eq!(monitor.tree["kdamonds"][0]["contexts"][0]["schemes"][0]["stats"]["sz_applied"], statistics.sz_applied);
    // Ten to a thousand regions every 5 ms at 155 ns a half of a check.
    let share = monitor.monitor_cpu as f64 / report.elapsed as f64;
    assert!((0.0005..0.07).contains(&share), "{share}");
    assert!(report.cpu_busy > monitor.monitor_cpu, "the thread's time passes on a CPU");
}

#[test]
fn what_a_scheme_paged_out_and_is_wanted_again_counts_as_a_refault() {
    // After the quiet four seconds everything is touched again.
    let again = scenario(PAGE_OUT).replacen("3.9s", "10s", 1).replacen(
        "[monitor]",
        "[[task.workload]]\nspec = \"cyclic:pages=8192,accesses=8192,kind=anon\"\n[monitor]",
        1,
    );
    let run = |policy: Box<dyn FnOnce(Scenario) -> Report>| policy(Scenario::parse(&again, "s.toml").unwrap());
    let reports = [
        run(Box::new(|s| Machine::new(s.config, classic()).unwrap().run().unwrap())),
        run(Box::new(|s| Machine::new(s.config, Mglru::new(MglruParams::default())).unwrap().run().unwrap())),
    ];
    for report in reports {
        let counters = report.counters;
        assert!(counters.pswpin > 5000, "{} pages came back", counters.pswpin);
        assert_eq!(counters.workingset_refault_anon, counters.pswpin, "each left a shadow entry");
        assert_eq!((counters.pgscan, counters.pgsteal), (0, 0), "page-out counts neither (spec: overview §6)");
    }
}

#[test]
fn watching_alone_evicts_nothing_and_loses_no_reference() {
    // A limit below the footprint, so that reclaim asks for references while the monitor takes them.
    let limited = |rest: &str| {
        let text = scenario(rest).replace("name = \"/g\"\nmax = \"128M\"", "name = \"/g\"\nmax = \"8M\"");
        let scenario = Scenario::parse(&text, "s.toml").unwrap();
        Machine::new(scenario.config, classic()).unwrap().run().unwrap().counters
    };
    let (alone, watched): (Counters, Counters) = (limited(""), limited("[monitor]\nnr_regions = { min = 500 }\n"));
    let close = |a: u64, b: u64| a.abs_diff(b) <= a / 50 + 20;
    assert!(close(alone.pgmajfault, watched.pgmajfault), "{} {}", alone.pgmajfault, watched.pgmajfault);
    assert!(close(alone.pgsteal, watched.pgsteal), "{} {}", alone.pgsteal, watched.pgsteal);
}

#[test]
fn a_run_repeats() {
    let run = || {
        let report = run(PAGE_OUT, classic()).unwrap();
        (report.elapsed, report.counters.values(), report.monitor.unwrap().checks)
    };
    assert_eq!(run(), run());
}

#[test]
fn sorting_acts_on_lists_and_generations() {
    let sort = "[monitor]\n[[monitor.schemes]]\naction = \"lru_prio\"\naccess_pattern = { nr_accesses = { min = 4 } }\n\
                [[monitor.schemes]]\naction = \"lru_deprio\"\n\
                access_pattern = { nr_accesses = { max = 0 }, age = { min = \"1 s\" } }\n";
    let report = run(sort, classic()).unwrap();
    assert!(report.counters.pgactivate >= 900, "{}", report.counters.pgactivate);
    let version = MglruParams { version: Version::V7_2, ..MglruParams::default() };
    for report in [report, run(sort, Mglru::new(version)).unwrap()] {
        let schemes = report.monitor.unwrap().schemes;
        assert!(schemes.iter().all(|scheme| scheme.statistics().sz_applied > 0), "{:?}", schemes[0].statistics());
    }
    let text = run(sort, Fifo::default()).err().unwrap();
    assert_eq!(text, "monitor.schemes[0].action: lru_prio needs a policy with lists to sort; use classic or mglru");
}

#[test]
fn a_task_is_watched_by_its_number_and_ends_with_it() {
    let stat = "[monitor]\nops = \"vaddr\"\ntargets = [{ pid = 1 }]\n[[monitor.schemes]]\naction = \"cold\"\n\
                access_pattern = { nr_accesses = { max = 0 }, age = { min = \"1 s\" } }\n";
    let report = run(stat, classic()).unwrap();
    let monitor = report.monitor.unwrap();
    assert!(monitor.checks > 1000 && monitor.schemes[0].statistics().nr_applied > 0);
    let text = run(&stat.replace("pid = 1", "pid = 2"), classic()).err().unwrap();
    assert_eq!(text, "monitor.targets[0].pid: is the number of a task, from 1 to 1");
}

#[test]
fn a_goal_moves_the_quota() {
    let scheme = |target: u32| {
        format!(
            "[monitor]\n[[monitor.schemes]]\naction = \"pageout\"\naccess_pattern = {{ nr_accesses = {{ max = 0 }} }}\n\
             quotas = {{ sz_bytes = \"8 MiB\", reset_interval_ms = 200, \
             goal_tuner = \"temporal\", goals = [{{ metric = \"node_mem_free_bp\", \
             nid = 0, target_value = \"{target} %\" }}] }}\n"
        )
    };
    let out = |target: u32| run(&scheme(target), classic()).unwrap().counters.pswpout;
    // 75 % of the memory is free when it has been filled: a goal below that is met, one above lets the quota be used.
    assert_eq!(out(20), 0);
    assert!(out(95) > 5000, "{}", out(95));
}

#[test]
fn mistakes_name_file_line_and_key() {
    for (rest, wanted) in [
        ("[monitor]\nnr_regions = { min = 100, max = 10 }\n", "s.toml:19: monitor.nr_regions.min"),
        ("[monitor]\nintervals = { sample_us = \"1 s\" }\n", "s.toml:19: monitor.intervals.sample_us"),
        ("[monitor]\nwhat = 1\n", "s.toml:19: monitor.what"),
        ("[monitor]\n[[monitor.schemes]]\naction = \"evict\"\n", "s.toml:20: monitor.schemes[0].action"),
    ] {
        let text = run(rest, classic()).err().unwrap();
        assert!(text.starts_with(wanted), "{text}");
    }
    for (rest, wanted) in [
        ("[monitor]\n[[monitor.schemes]]\naction = \"migrate_hot\"\ntarget_nid = 0\n", "equally fast"),
        ("[monitor]\nops = \"vaddr\"\n[[monitor.schemes]]\naction = \"willneed\"\n", "come in when they are accessed"),
        (
            "[monitor]\n[[monitor.schemes]]\naction = \"stat\"\n\
             filters = [{ filter_type = \"memcg\", memcg_path = \"/other\" }]\n",
            "there is no group '/other'",
        ),
    ] {
        let text = run(rest, classic()).err().unwrap();
        assert!(text.contains(wanted), "{text}");
    }
}

fn module_event(at: &str, files: &str) -> String {
    format!("[[event]]\nat = \"{at}\"\nlru_sort = \"{files}\"\n")
}

fn with_files(events: &str) -> Report {
    run(events, classic()).expect("a machine")
}

#[test]
fn events_write_to_the_files_of_lru_sort() {
    let marks = "wmarks_high=1000, wmarks_mid=999, wmarks_low=0";
    let sorted = |report: &Report| {
        let schemes = &report.monitor.as_ref().expect("there is a monitor").schemes;
        [0, 1].map(|at: usize| schemes.get(at).map_or(0, |scheme| scheme.statistics().nr_applied))
    };
    let never = with_files(&module_event("1s", marks));
    assert_eq!((sorted(&never), never.counters.pgactivate), ([0, 0], 0), "it is off until it is enabled");
    let on = with_files(&module_event("1s", &format!("{marks}; enabled=Y")));
    assert!(sorted(&on)[0] > 0 && on.counters.pgactivate > 400, "{:?}, {}", sorted(&on), on.counters.pgactivate);
    assert_eq!(sorted(&on)[1], 0, "nothing is idle for two minutes");
    let late = module_event("1s", &format!("{marks}, enabled=Y")) + &module_event("2s", "cold_min_age=500000");
    assert_eq!(sorted(&with_files(&late))[1], 0, "what is written waits");
    let committed = with_files(&(late + &module_event("2s", "commit_inputs=Y")));
    assert!(sorted(&committed)[1] > 0, "cold memory is sorted from then on");
    let refused = with_files(&module_event("1s", "commit_inputs=Y, kdamond_pid=1, quota=3"));
    let reasons: Vec<&str> = refused.listings.iter().map(|listing| listing.text.trim_end()).collect();
    assert!(reasons[0].ends_with("Invalid argument") && reasons[1].ends_with("Permission denied"), "{reasons:?}");
    assert!(reasons[2].ends_with("No such file or directory"), "{reasons:?}");
}
