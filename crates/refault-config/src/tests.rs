//! What is read, what is written, and what is refused with which words.

use refault_core::monitor::{IntervalsGoal, Profile, View};
use refault_core::schemes::{Action, Bounds, Filter, FilterKind, Goal, Metric, Weights};

use super::Config;

const SORTING: &str = r#"
profile = "k518"
seed = 7
ops = "paddr"

[intervals]
sample_us = "5 ms"
aggr_us = 100000

[nr_regions]
min = 10
max = 1_000

[[targets]]
regions = [{ start = 0, end = "1 GiB" }]

[[schemes]]
action = "lru_prio"
access_pattern = { sz_bytes = { min = "4K" }, nr_accesses = { min = "20 %", max = "max" } }
quotas = { time_ms = "20 ms", reset_interval_ms = "1 s", weights = { nr_accesses_permil = 3, age_permil = 7 } }
watermarks = { metric = "free_mem_rate", interval_us = "5 s", high_permil = 1000, mid_permil = 999, low_permil = 0 }

[[schemes]]
action = "lru_deprio"
access_pattern = { nr_accesses = { max = 0 }, age = { min = "5 s" } }
"#;

#[test]
fn toml_is_read_with_units_and_defaults() {
    let config = Config::parse(SORTING, "sorting.toml").unwrap();
    assert_eq!((config.profile, config.view, config.seed), (Profile::K518, View::Physical, Some(7)));
    assert_eq!((config.attributes.sample_interval, config.attributes.ops_update_interval), (5000, 1_000_000));
    assert_eq!(config.targets[0].ranges, [std::ops::Range { start: 0, end: 1 << 30 }]);
    let [hot, cold] = &config.schemes[..] else { panic!("two schemes") };
    assert_eq!(hot.action, Action::LruPrio);
    assert_eq!(hot.pattern.nr_accesses, Bounds { min: 4, max: u64::MAX });
    assert_eq!((hot.quota.time_ms, hot.quota.reset_interval_ms), (20, 1000));
    assert_eq!(hot.quota.weights, Weights { size: 0, nr_accesses: 3, age: 7 });
    assert_eq!(cold.pattern.age, Bounds::at_least(50));
    assert_eq!(cold.pattern.nr_accesses, Bounds { min: 0, max: 0 });
    assert!(config.kdamond(0..0, 1, 0).is_ok());
}

#[test]
fn the_tools_tree_is_read_and_written_back_the_same() {
    let text = r#"{"kdamonds":[{"state":"off","pid":null,"refresh_ms":0,"contexts":[{"ops":"paddr","addr_unit":null,
        "targets":[{"pid":null,"obsolete":false,"regions":[{"start":"4,294,967,296","end":"8,589,934,592"}]}],
        "intervals":{"sample_us":"5 ms","aggr_us":"100 ms","ops_update_us":"1 s",
            "intervals_goal":{"access_bp":"4 %","aggrs":"3","min_sample_us":"5 ms","max_sample_us":"10 s"}},
        "nr_regions":{"min":"10","max":"1,000"},"probes":[],"sample_control":null,"pause":null,
        "schemes":[{"action":"migrate_cold","target_nid":1,"dests":[],
            "access_pattern":{"sz_bytes":{"min":"0 B","max":"max"},"nr_accesses":{"min":"0 %","max":"0 %"},
                "age":{"min":"3 aggr_intervals","max":"max"}},
            "apply_interval_us":"1 s",
            "quotas":{"time_ms":"0 ns","sz_bytes":"200 MiB","reset_interval_ms":"1 s",
                "goals":[{"metric":"node_mem_free_bp","nid":0,"target_value":"0.5 %","current_value":0},
                         {"metric":"node_memcg_used_bp","nid":0,"memcg_path":"/work","target_value":"50 %"}],
                "goal_tuner":"temporal","effective_sz_bytes":"0 B",
                "weights":{"sz_permil":"0 %","nr_accesses_permil":"10 %","age_permil":"0.1 %"}},
            "watermarks":{"metric":"none","interval_us":"0 ns","high_permil":"0 %","mid_permil":"0 %","low_permil":"0 %"},
            "filters":[{"filter_type":"young","matching":true,"allow":false},
                       {"filter_type":"addr","matching":true,"allow":false,"address_range":["0","1 MiB"]},
                       {"filter_type":"hugepage_size","matching":false,"allow":true,"hugepage_size":["2 MiB","max"]},
                       {"filter_type":"memcg","matching":true,"allow":true,"memcg_path":"/other"}],
            "stats":{"nr_tried":5,"max_nr_snapshots":9}}]}]}]}"#;
    let config = Config::parse(text, "damo.json").unwrap();
    assert_eq!(config.attributes.intervals_goal, Some(IntervalsGoal::RECOMMENDED));
    assert_eq!(config.memcg_paths, ["/work", "/other"]);
    let scheme = &config.schemes[0];
    assert_eq!(scheme.action, Action::MigrateCold { node: 1 });
    assert_eq!((scheme.max_nr_snapshots, scheme.apply_interval), (9, 1_000_000));
    assert_eq!(scheme.quota.weights, Weights { size: 0, nr_accesses: 100, age: 1 });
    assert_eq!(scheme.quota.goals[0], Goal::new(Metric::NodeMemFreeBp { node: 0 }, 50, 0));
    assert_eq!(scheme.quota.goals[1].metric, Metric::NodeMemcgUsedBp { node: 0, memcg: 0 });
    assert_eq!(scheme.filters[0], Filter::reject(FilterKind::Young));
    assert_eq!(scheme.filters[1], Filter::reject(FilterKind::Addr(0..1 << 20)));
    let written = config.to_json(None);
    assert_eq!(Config::parse(&written.to_string(), "again").unwrap(), config);
    assert_eq!(written["kdamonds"][0]["contexts"][0]["schemes"][0]["access_pattern"]["age"]["min"], "3 aggr_intervals");
}

#[test]
fn an_unlimited_bound_stays_unlimited_whatever_the_window() {
    let text = r#"[{"action":"stat","access_pattern":{"nr_accesses":{"min":"1 samples","max":"max"}}}]"#;
    let config = Config::parse(text, "x").unwrap();
    assert_eq!(config.schemes[0].pattern.nr_accesses, Bounds::at_least(1));
}

#[test]
fn state_of_schemes_at_work_is_written() {
    let config = Config::parse(SORTING, "x").unwrap();
    let kdamond = config.kdamond(0..0, 0, 0).unwrap();
    let written = config.to_json(Some(kdamond.schemes()));
    assert_eq!(written["kdamonds"][0]["state"], "on");
    assert_eq!(written["kdamonds"][0]["contexts"][0]["schemes"][1]["stats"]["qt_exceeds"], 0);
    assert!(Config::parse(&written.to_string(), "again").is_ok());
}

#[test]
fn one_line_schemes_and_overrides() {
    let mut config = Config::default();
    config.add_scheme("lru_prio sz_bytes=4K.. nr_accesses=20%.. quota=20ms,0,1s weights=0,3,7").unwrap();
    config.add_scheme("lru_deprio nr_accesses=0 age=5s.. wmarks=free_mem_rate,5s,1000,999,0").unwrap();
    assert_eq!(config.schemes[0].pattern.nr_accesses, Bounds::at_least(4));
    assert_eq!(config.schemes[0].quota.time_ms, 20);
    assert_eq!(config.schemes[1].pattern.nr_accesses, Bounds { min: 0, max: 0 });
    assert_eq!(config.schemes[1].pattern.age, Bounds::at_least(50));
    assert_eq!(config.schemes[1].watermarks.mid, 999);
    let overrides = ["intervals.sample_us=1ms".to_owned(), "schemes[0].action=stat".to_owned()];
    let config = Config::parse_with(SORTING, "x", &overrides).unwrap();
    assert_eq!((config.attributes.sample_interval, &config.schemes[0].action), (1000, &Action::Stat));
    assert!(Config::parse_with("", "x", &["schemes[3].action=stat".to_owned()]).is_err());
}

#[test]
fn modules_are_configured_by_their_kernel_names() {
    let text =
        "module = \"lru-sort\"\nparameters = { hot_thres_access_freq = 200, quota_ms = 40, cold_min_age = \"5 s\" }\n";
    let config = Config::parse(text, "m.toml").unwrap();
    assert_eq!(config.schemes[0].pattern.nr_accesses, Bounds::at_least(4));
    assert_eq!(config.schemes[1].pattern.age, Bounds::at_least(50));
    assert_eq!(config.schemes[1].quota.time_ms, 20);
    assert_eq!(Config::parse("module = \"reclaim\"", "m").unwrap().schemes[0].action, Action::Pageout);
    assert_eq!(Config::parse("module = \"stat\"", "m").unwrap().attributes.ops_update_interval, 60_000_000);
}

/// The whole line that people see.
fn refused(text: &str) -> String {
    Config::parse(text, "f").unwrap_err().to_string()
}

#[test]
fn refusals_name_the_key_and_the_reason() {
    for (text, line) in [
        ("intervals = { sample_us = \"1 s\" }", "f: intervals.sample_us: is above aggr_interval"),
        ("nr_regions = { min = 20, max = 10 }", "f: nr_regions.min: is above max_nr_regions"),
        ("nr_region = { min = 20 }", "f: nr_region: is not known; known are profile, seed,"),
        ("[[schemes]]\naction = \"dance\"", "f: schemes[0].action: is not an action; use one of willneed, cold,"),
        (
            "[[schemes]]\naction = \"willneed\"",
            "f: schemes[0].action: willneed is advice on a range of a process; use vaddr",
        ),
        ("[[schemes]]\nactoin = \"stat\"", "f: schemes[0].actoin: is not known"),
        (
            "[[schemes]]\naction = \"stat\"\naccess_pattern = { age = { min = 5, max = 4 } }",
            "f: schemes[0].access_pattern.age: min is above max",
        ),
        (
            "[[schemes]]\naction = \"stat\"\nquotas = { goals = [{ metric = \"user_input\", target_value = 5 }] }",
            "f: schemes[0].quotas.goals: a goal tunes a quota",
        ),
        (
            "[[targets]]\nregions = [{ start = 0, end = 8192 }]\n[[targets]]\nregions = [{ start = 4096, end = 9000 }]",
            "f: targets[1].regions: 4096-9000 overlaps a region of targets[0]",
        ),
        ("[[targets]]\nregions = [{ start = 5, end = 5 }]", "f: targets[0].regions[0]: is empty"),
        ("ops = \"vaddr\"\n[[targets]]", "f: targets[0].pid: must name the process"),
        ("intervals = { sample_us = \"5 bananas\" }", "f: intervals.sample_us: '5 bananas' has an unknown unit"),
        ("intervals = { sample_us = -5 }", "f: intervals.sample_us: must be a whole number"),
        ("intervals = [", "f: line 1: "),
        ("{\"kdamonds\": [}", "f: expected value at line 1"),
        ("{\"kdamonds\": []}", "f: kdamonds: has 0 entries"),
        ("profile = \"k99\"", "f: profile: is not a profile"),
        ("module = \"lru-sort\"\nparameters = { quota_mss = 1 }", "f: parameters.quota_mss: is not known"),
        (
            "module = \"lru-sort\"\nparameters = { wmarks_low = 300 }",
            "f: parameters: watermarks.low_permil: is above mid",
        ),
        ("module = \"lru-sort\"\nops = \"paddr\"", "f: ops: is decided by the module"),
        ("[[schemes]]\naction = \"migrate_hot\"", "f: schemes[0].target_nid: must name the node"),
        (
            "[[schemes]]\naction = \"stat\"\nfilters = [{ filter_type = \"colour\" }]",
            "f: schemes[0].filters[0].filter_type: is not a filter",
        ),
    ] {
        let found = refused(text);
        assert!(found.starts_with(line) && !found.contains('\n'), "{text:?}\n  gave {found:?}\n  not  {line:?}");
    }
}

#[test]
fn no_text_panics() {
    for text in
        ["", "[", "{", "[[[[", "{}", "[]", "null", "\u{0}", "a=1e999", "seed = 1e30", "[{\"action\":{}}]", "[1,2]"]
    {
        let _ = Config::parse(text, "f");
    }
    let pieces = ["max", "..", "=", ",", "0", "quota=", "age=", "5s", "\u{fc}", "%"];
    for a in pieces {
        for b in pieces {
            let _ = Config::default().add_scheme(&format!("stat {a}{b}"));
            let _ = Config::parse_with("", "f", &[format!("{a}{b}")]);
        }
    }
}

/// What `damo args damon … --format json` of damo 3.4.3 writes.
#[test]
fn what_damo_writes_today_is_read() {
    let read = |text: &str| Config::parse(text, "f").map_err(|error| error.to_string());
    let age = include_str!("tests/damo-3.4.3-age.json");
    let filter = include_str!("tests/damo-3.4.3-filter.json");
    let goal = include_str!("tests/damo-3.4.3-goal.json");
    for (text, filters, goals) in [(age, 0, 0), (filter, 1, 0), (goal, 0, 1)] {
        let config = read(text).expect("read");
        let scheme = &config.schemes[0];
        assert_eq!((scheme.filters.len(), scheme.quota.goals.len()), (filters, goals));
    }
    // What asks for something that is not here is refused by its key.
    for (from, to, key) in [
        ("\"page_fault\": false", "\"page_fault\": true", "sample_control.primitives_enabled.page_fault"),
        ("\"page_table\": true", "\"page_table\": false", "sample_control.primitives_enabled.page_table"),
        ("\"sample_filters\": []", "\"sample_filters\": [1]", "sample_control.sample_filters"),
        ("\"complement\": false", "\"complement\": true", "schemes[0].quotas.goals[0].complement"),
        ("\"pause\": false", "\"pause\": true", "pause"),
        ("\"pause\": false", "\"newer_key\": 7", "newer_key"),
    ] {
        assert!(goal.contains(from), "{from}");
        let error = read(&goal.replace(from, to)).expect_err(to);
        assert!(error.starts_with(&format!("f: {key}: ")), "{error}");
    }
    assert!(read(&goal.replace("\"pause\": false", "\"newer_key\": 0")).is_ok());
    // A person's TOML is held to the keys that there are.
    assert!(read("newer_key = 0").is_err());
}
