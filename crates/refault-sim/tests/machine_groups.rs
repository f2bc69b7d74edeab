//! Groups, nodes, protection, thrashing prevention, commands on generations and their listing, through scenario files.

use refault_core::classic::{Classic, ClassicParams};
use refault_core::mglru::{Mglru, MglruParams};
use refault_core::policy::Policy;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;
use refault_sim::machine::{End, Machine};

fn run<P: Policy + Send + 'static>(text: &str, policy: P) -> Report {
    let scenario = Scenario::parse(text, "s.toml").unwrap();
    Machine::new(scenario.config, policy).unwrap().run().unwrap()
}

fn mglru() -> Mglru {
    Mglru::new(MglruParams::default())
}

fn classic() -> Classic {
    Classic::new(ClassicParams::default())
}

/// Two groups that each want as much memory as there is.
fn rivals(first: &str) -> String {
    format!(
        r#"
[machine]
cpus = 2
memory = "64M"
swap = "256M"
swap_device = "zram-lz4"
[[group]]
name = "/a"
{first}
[[group]]
name = "/b"
[[task]]
name = "a"
group = "/a"
[[task.workload]]
spec = "uniform:pages=12000,accesses=300000,writes=0.5"
[[task]]
name = "b"
group = "/b"
[[task.workload]]
spec = "uniform:pages=12000,accesses=600000,writes=0.5"
"#
    )
}

fn faults_of_a<P: Policy + Send + 'static>(policy: P, protection: &str) -> (u64, Report) {
    let report = run(&rivals(protection), policy);
    assert_eq!(report.end, End::Finished);
    (report.groups[1].major_faults, report)
}

#[test]
fn protected_groups_are_spared_while_others_have_something_to_give() {
    let (bare, _) = faults_of_a(classic(), "");
    let (low, report) = faults_of_a(classic(), "low = \"12500p\"");
    let (min, _) = faults_of_a(classic(), "min = \"12500p\"");
    assert!(bare > 10_000, "without protection both suffer: {bare}");
    assert!(low < bare / 4 && min < bare / 4, "{bare} faults fall to {low} (low) and {min} (min)");
    assert_eq!(report.groups[1].events.low, 0);
}

#[test]
fn the_multi_gen_lru_passes_over_a_low_group_once_and_over_a_min_group_always() {
    // Below low a group goes to the tail of its generation, and gives at its second turn (spec: mglru §14).
    let (bare, _) = faults_of_a(mglru(), "");
    let (_, low) = faults_of_a(mglru(), "low = \"12500p\"");
    let (min, _) = faults_of_a(mglru(), "min = \"12500p\"");
    assert!(bare > 10_000 && min < bare / 4, "{bare} faults fall to {min}");
    assert!(low.groups[1].events.low > 0, "its second turn is an event");
}

#[test]
fn low_gives_way_where_min_does_not() {
    // All of memory is protected: low is broken into and says so, min kills.
    let everywhere = |key: &str| {
        rivals(&format!("{key} = \"64M\"")).replace("name = \"/b\"", &format!("name = \"/b\"\n{key} = \"64M\""))
    };
    let low = run(&everywhere("low"), classic());
    assert_eq!((low.end, low.kills.len()), (End::Finished, 0));
    assert!(low.groups[1].events.low > 0 && low.groups[2].events.low > 0);
    let min = run(&everywhere("min"), classic());
    assert!(!min.kills.is_empty(), "nothing may be reclaimed");
}

/// A group with a limit, of which more is wanted.
fn limited(limit: &str) -> String {
    format!(
        r#"
[machine]
memory = "256M"
swap = "256M"
swap_device = "zram-lz4"
[[group]]
name = "/g"
{limit}
[[task]]
name = "t"
group = "/g"
[[task.workload]]
spec = "cyclic:pages=8192,accesses=200000,writes=1"
"#
    )
}

#[test]
fn high_slows_down_and_never_kills() {
    let free = run(&limited(""), mglru());
    let high = run(&limited("high = \"16M\""), mglru());
    let max = run(&limited("max = \"16M\""), mglru());
    let events = |report: &Report| report.groups[1].events;
    assert_eq!((events(&free).high, events(&free).max, free.counters.pgsteal), (0, 0, 0));
    assert!(events(&high).high > 0 && events(&high).max == 0 && high.kills.is_empty());
    assert!(events(&max).max > 0 && events(&max).high == 0);
    assert!(high.groups[1].usage < 4096 + 512, "{} pages for a high of 4096", high.groups[1].usage);
    assert!(max.groups[1].usage <= 4096);
    assert!(high.elapsed > free.elapsed && high.tasks[0].stalled > 0);
}

#[test]
fn high_without_swap_delays_the_task() {
    let text = limited("high = \"16M\"").replace("swap = \"256M\"\nswap_device = \"zram-lz4\"\n", "");
    let report = run(&text, classic());
    // 4096 pages too many, of which nothing can go: two seconds for every 64 of them, as the kernel's table says.
    assert_eq!((report.end, report.kills.len()), (End::Finished, 0));
    assert!(report.elapsed > 60_000_000_000, "only {} s", report.elapsed / 1_000_000_000);
    assert!(report.tasks[0].stalled > report.elapsed / 2);
}

#[test]
fn limits_change_while_the_tasks_run() {
    let text = limited("").replace("accesses=200000", "accesses=2000000")
        + "[[event]]\nat = \"50ms\"\ngroup = \"/g\"\nmax = \"8M\"\n[[event]]\nat = \"60ms\"\ngroup = \"/g\"\nreclaim = \"4M\"\n";
    let report = run(&text, mglru());
    assert!(report.groups[1].events.max > 0 && report.counters.pswpin > 0);
    assert_eq!(report.kills.len(), 0);
}

#[test]
fn memory_comes_from_the_node_nearby_and_then_from_the_others() {
    let text = |pages: u32| {
        format!(
            r#"
[machine]
cpus = 2
nodes = ["32M", "32M"]
swap = "64M"
swap_device = "zram-lz4"
[[task]]
name = "t"
node = 1
[[task.workload]]
spec = "cyclic:pages={pages},accesses=100000,writes=1"
"#
        )
    };
    for pages in [4000, 12_000] {
        let scenario = Scenario::parse(&text(pages), "s.toml").unwrap();
        let mut machine = Machine::new(scenario.config, mglru()).unwrap();
        let mut most = [0u64; 2];
        let report = machine.run().unwrap();
        for (node, state) in machine.memory().nodes.iter().enumerate() {
            most[node] = state.managed;
        }
        assert_eq!(report.end, End::Finished);
        assert_eq!(most, [8192, 8192]);
        assert_eq!(report.counters.pswpout, 0, "{pages} pages fit into both nodes");
    }
    let both = run(&text(20_000), mglru());
    assert!(both.counters.pswpout > 0 && both.pageoutrun > 1, "two kswapds have work: {}", both.pageoutrun);
}

#[test]
fn each_node_has_generations_of_its_own() {
    let text = r#"
[machine]
cpus = 2
nodes = ["64M", "64M"]
duration = "2s"
[[group]]
name = "/g"
[[task]]
name = "near"
node = 0
group = "/g"
[[task.workload]]
spec = "cyclic:pages=1000,accesses=1000,writes=1"
[[task.workload]]
spec = "cyclic:pages=1,accesses=1"
pause = "100s"
[[task]]
name = "far"
node = 1
group = "/g"
[[task.workload]]
spec = "cyclic:pages=3000,accesses=3000,writes=1"
[[task.workload]]
spec = "cyclic:pages=1,accesses=1"
pause = "100s"
[[event]]
at = "1s"
lru_gen = "+ 1 1 max"
list = true
"#;
    let report = run(text, mglru());
    let listing = &report.listings[0].text;
    let lines: Vec<Vec<&str>> = listing.lines().map(|line| line.split_whitespace().collect()).collect();
    let start = lines.iter().position(|line| line[..] == ["memcg", "1", "/g"]).expect("the group is listed");
    assert_eq!(lines[start + 1], ["node", "0"]);
    // Generations 0 to 3, aged one second, nothing but anonymous memory in the youngest.
    assert_eq!(lines[start + 2..start + 6].iter().map(|line| line[0]).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    assert_eq!(lines[start + 5], ["3", "1000", "1000", "0"]);
    // The other node was aged by the command: one more generation, born now.
    let far = start + 6;
    assert_eq!(lines[far], ["node", "1"]);
    let last = lines[far..].iter().skip(1).take_while(|line| line[0] != "memcg").last().unwrap();
    assert_eq!((last[0], last[1]), ("4", "0"), "{listing}");
    let pages: u64 =
        lines[far + 1..].iter().take_while(|l| l[0] != "memcg").map(|l| l[2].parse::<u64>().unwrap()).sum();
    assert_eq!(pages, 3000);
}

#[test]
fn generations_are_made_and_evicted_by_command() {
    // Touched once and then idle: two new generations make it cold, the third command evicts it.
    let text = r#"
[machine]
memory = "128M"
swap = "128M"
swap_device = "zram-lz4"
duration = "5s"
[[group]]
name = "/g"
[[task]]
name = "idle"
group = "/g"
[[task.workload]]
spec = "cyclic:pages=2048,accesses=2048,writes=1"
[[task.workload]]
spec = "cyclic:pages=1,accesses=1"
pause = "100s"
[[event]]
at = "1s"
lru_gen = "+ 1 0 max; + 1 0 max; + 1 0 max"
[[event]]
at = "2s"
lru_gen = "- 1 0 max-2 200 1000"
list = true
[[event]]
at = "3s"
lru_gen = "- 1 0 max; - 1 0 max-1; + 7 0 max; + 1 0 99; - 1 9 3"
"#;
    let report = run(text, mglru());
    assert_eq!(report.counters.generations_created, 3);
    assert!(report.counters.pswpout >= 1000, "proactive reclaim by command: {}", report.counters.pswpout);
    assert!(report.counters.pswpout < 1200, "it stops near the pages asked for: {}", report.counters.pswpout);
    let refusals: Vec<&str> = report.listings[1..].iter().map(|listing| listing.text.trim_end()).collect();
    // The two youngest are never evicted; a group, a sequence number and a node that do not exist.
    assert_eq!(refusals.len(), 5, "{refusals:#?}");
    assert!(refusals[2].contains("no group 7") && refusals[4].contains("node 9"), "{refusals:#?}");
}

#[test]
fn a_classic_machine_refuses_commands_on_generations() {
    let text = limited("") + "[[event]]\nat = \"1ms\"\nlru_gen = \"+ 1 0 max\"\n";
    let report = run(&text, classic());
    assert!(report.listings[0].text.contains("the policy has no generations"));
    assert!(report.lruvecs.is_empty());
}

#[test]
fn min_ttl_kills_rather_than_evicts_the_working_set() {
    let text = |extra: &str| {
        format!(
            r#"
[machine]
cpus = 2
memory = "32M"
swap = "128M"
swap_device = "sata-ssd"
duration = "8s"
{extra}
[[task]]
name = "t"
count = 2
[[task.workload]]
spec = "uniform:pages=6000,accesses=100000000,writes=0.5"
"#
        )
    };
    assert_eq!(run(&text(""), mglru()).kills.len(), 0, "swap holds all of it");
    let prevented = run(&text("min_ttl = \"1s\""), mglru());
    assert_eq!(prevented.kills.len(), 1, "one of two working sets fits");
    let stalled = run(&text(""), mglru()).some.total_us;
    assert!(prevented.some.total_us < stalled / 4, "{} us after {stalled}", prevented.some.total_us);
}

#[test]
fn lruvecs_compare_by_the_birth_of_their_oldest_pages() {
    let text = r#"
[machine]
cpus = 2
memory = "256M"
duration = "10s"
[[group]]
name = "/early"
[[group]]
name = "/late"
[[task]]
name = "early"
group = "/early"
[[task.workload]]
spec = "cyclic:pages=1000,accesses=1000,writes=1"
[[task.workload]]
spec = "cyclic:pages=1,accesses=1"
pause = "100s"
[[task]]
name = "late"
group = "/late"
[[task.workload]]
spec = "uniform:pages=1000,accesses=1000000000,writes=0.5"
[[event]]
at = "2s"
lru_gen = "+ 1 0 max, + 2 0 max"
[[event]]
at = "4s"
lru_gen = "+ 1 0 max, + 2 0 max"
[[event]]
at = "6s"
lru_gen = "+ 1 0 max, + 2 0 max"
"#;
    let report = run(text, mglru());
    let coldest: Vec<(&str, u64)> = report.lruvecs.iter().map(|l| (l.group.as_str(), l.pages)).collect();
    // Both were aged alike; only the busy one's pages moved on. What each holds is what can be taken from it first.
    assert_eq!(coldest, [("/early", 1000), ("/late", 1000)]);
    // A walk promotes to what is then the youngest generation, the one before the one it makes.
    let ages: Vec<u64> = report.lruvecs.iter().map(|lruvec| lruvec.age / 1_000_000_000).collect();
    assert_eq!(ages, [10, 6], "{:?}", report.lruvecs);
}

#[test]
fn groups_of_a_node_are_reclaimed_from_in_turn() {
    // The memcg generations: three equal groups give about equally, and reclaim does not walk all of them each time.
    let task = |name: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\ngroup = \"/{name}\"\n[[task.workload]]\nspec = \"uniform:pages=6000,accesses=400000,writes=0.5\"\n"
        )
    };
    let text = format!(
        "[machine]\ncpus = 3\nmemory = \"48M\"\nswap = \"256M\"\nswap_device = \"zram-lz4\"\n[[group]]\nname = \"/a\"\n[[group]]\nname = \"/b\"\n[[group]]\nname = \"/c\"\n{}{}{}",
        task("a"),
        task("b"),
        task("c")
    );
    let report = run(&text, mglru());
    let faults: Vec<u64> = report.groups[1..].iter().map(|group| group.major_faults).collect();
    let (least, most) = (faults.iter().min().unwrap(), faults.iter().max().unwrap());
    assert!(*least > 1000 && *most < least * 2, "{faults:?}");
}

#[test]
fn a_killer_ends_what_has_slept_for_longest() {
    let text = r#"
[machine]
cpus = 2
memory = "32M"
swap = "128M"
swap_device = "zram-lz4"
kill_trigger = "some 50000 1000000"
duration = "10s"
[[task]]
name = "asleep"
[[task.workload]]
spec = "cyclic:pages=2000,accesses=2000,writes=1"
[[task.workload]]
spec = "cyclic:pages=1,accesses=1"
pause = "100s"
[[task]]
name = "busy"
[[task.workload]]
spec = "uniform:pages=9000,accesses=100000000,writes=0.5"
"#;
    let report = run(text, mglru());
    assert_eq!(report.kills[0].task, "asleep");
    assert!(report.kills.len() <= 10, "at most one per window");
}

/// A group of cold anonymous pages of which a user asks for a part.
fn asked(event: &str) -> String {
    format!(
        r#"
[machine]
memory = "256M"
swap = "256M"
swap_device = "zram-lz4"
duration = "1000s"
[[group]]
name = "/g"
[[task]]
name = "t"
group = "/g"
[[task.workload]]
spec = "cyclic:pages=4096,accesses=4096,writes=1"
[[task.workload]]
spec = "cyclic:pages=1,accesses=1"
pause = "2000s"
[[event]]
at = "100s"
group = "/g"
reclaim = "1024p"
{event}
"#
    )
}

#[test]
fn a_user_may_say_with_the_request_that_nothing_is_to_be_swapped() {
    let stolen = |event: &str| [run(&asked(event), classic()), run(&asked(event), mglru())].map(|r| r.counters.pgsteal);
    assert_eq!(stolen("swappiness = 0"), [0, 0]);
    for event in ["", "swappiness = 60", "swappiness = 200"] {
        assert!(stolen(event).iter().all(|pages| (1024..1536).contains(pages)), "{event}: {:?}", stolen(event));
    }
    let wrong = [asked("swappiness = 201"), asked("swappiness = 60").replace("reclaim = \"1024p\"", "max = \"16M\"")];
    for text in wrong {
        let error = Scenario::parse(&text, "s.toml").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("give a number from 0 to 200, with reclaim"), "{error}");
    }
}
