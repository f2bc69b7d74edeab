//! What real tools write that a reader could misread in silence: read rightly, remarked on, or refused with the way out.

use refault_trace::{ObjectsAs, Options, open_bytes};

use crate::remarks::{columns, pages, read, text_of};

#[test]
fn a_list_of_records_behind_another_is_read_too() {
    let record = |end: u64, address: u64| {
        format!(
            r#"[{{"target_id": 0, "snapshots": [{{"end_time": {end}, "regions": [{{"start": {address}, "end": {},
            "nr_accesses": {{"samples": 3}}}}]}}]}}]"#,
            address + 4096
        )
    };
    let two = record(200, 8192) + "\n" + &record(100, 4096);
    assert_eq!(pages("t.damo", &two), (vec![1, 2], vec!["records_behind_each_other 1".to_owned()]));
    // Also where each was packed alone.
    let packed = |text: String| {
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut packed, text.as_bytes()).expect("packed");
        packed.finish().expect("packed")
    };
    let both = [packed(record(100, 4096)), packed(record(200, 8192))].concat();
    assert_eq!(read("t.damo", &both, &Options::default()).expect("readable").0, [1, 2]);
    let cut = read("t.damo", &both[..both.len() - 7], &Options::default()).expect_err("cut");
    assert!(cut.contains("truncated"), "{cut}");
    let error = text_of("t.damo", &(record(1, 0) + " {}"), &Options::default());
    assert!(error.contains("not a list of damo's records"), "{error}");
}

#[test]
fn regions_of_several_schemes_are_not_counted_again() {
    let record = |scheme: u64| {
        format!(
            r#"{{"kdamond_idx": 0, "context_idx": 0, "scheme_idx": {scheme}, "target_id": null, "snapshots": [{{"end_time": 5,
            "regions": [{{"start": 4096, "end": 8192, "nr_accesses": {{"samples": 3}}}}]}}]}}"#
        )
    };
    let json = format!("[{}, {}]", record(0), record(1));
    assert_eq!(pages("t.json", &json), (vec![1], vec!["other_schemes 1".to_owned()]));
}

#[test]
fn events_of_damon_are_known_as_each_tool_prints_them() {
    let trace_cmd = "     kdamond.0-4452  [000] .....    77.315633: damon_aggregated:     target_id=0 nr_regions=2 \
                     4096-8192: 3 1\n";
    let (found, remarks) = pages("t", &(trace_cmd.to_owned() + trace_cmd));
    assert_eq!(found, [1, 1]);
    assert!(remarks.is_empty(), "{remarks:?}");
    let applied = |scheme: u32| {
        format!(
            "kdamond.0 4452 [000] 77.315634: damon:damos_before_apply: ctx_idx=0 scheme_idx={scheme} target_idx=0 \
             nr_regions=2 8192-12288: 3 1\n"
        )
    };
    let schemes = applied(0) + &applied(1);
    assert_eq!(pages("t", &schemes), (vec![2], vec!["other_schemes 1".into(), "applied_only 2".into()]));
    let both = trace_cmd.to_owned() + &applied(0);
    assert_eq!(pages("t.damo", &both), (vec![1], vec!["applied_besides 1".to_owned()]));
}

#[test]
fn a_command_may_end_in_a_colon_as_an_event_does() {
    for command in ["worker: 3", "tmux: server", "a: b: 5"] {
        let line = format!("{command}  123 page-faults:     55faaff5c424\n");
        assert_eq!(pages("t.perf", &line), (vec![0x5_5faa_ff5c], Vec::new()), "{command}");
        let tracepoint = format!("{command}  123 exceptions:page_fault_user: address=0x2000 ip=0x1 error_code=0x6\n");
        assert_eq!(pages("t.perf", &tracepoint).0, [2], "{command}");
    }
}

#[test]
fn processes_are_counted_whatever_stands_beside_them() {
    let lines = |first: &str, second: &str| pages("t.perf", &(first.to_owned() + "\n" + second + "\n")).1;
    let several = ["several_processes 2"];
    assert_eq!(lines("a 7/7 K  1.000001: faults:  7f001000", "a 8/8 U  1.000002: faults:  7f001000"), several);
    let trace_cmd =
        |process: u32| format!("  a b-{process}  [000] d..1.  1.000001: page_fault_user: address=0x2000 ip=0x1");
    assert_eq!(lines(&trace_cmd(7), &trace_cmd(8)), several);
    assert_eq!(lines("a b 7 faults:  7f001000", "a b 8 faults:  7f001000"), several);
    // perf 6.1 writes 0x016 for 0x016%lx in its first line.
    let report = "# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL\n\
                  7 7 0xffffffff81752b6a 0x01655faaff5c424 0 0x1e05080021 [kernel.kallsyms]:elf_load\n\
                  7 7 0xffffffff81752b6a 0x55faaff5c424 0 0x1e05080021 [kernel.kallsyms]:elf_load\n\
                  8 8 0x1 0x0165500000001000 0 0x1e05080021 x\n";
    let page = 0x5_5faa_ff5c;
    assert_eq!(pages("t.perf", report), (vec![page, page, 0x1655_0000_0001], vec!["several_processes 2".to_owned()]));
}

#[test]
fn records_of_mappings_and_spans_of_time_are_no_samples() {
    let mapping = " python3 7 1.000000: PERF_RECORD_MMAP2 7/7: [0x7ffcf0ed7000(0x21000) @ 0 00:00 0 0]: rw-p [stack]\n";
    let sample = " python3 7 1.000001: page-faults:     55faaff5c424\n";
    for name in ["t", "t.perf"] {
        assert_eq!(pages(name, &(mapping.to_owned() + sample)).0, [0x5_5faa_ff5c], "{name}");
    }
    // As --deltatime prints them.
    let spans: String = (0..60).map(|at| format!("a 7 0.000{}: faults: 7f0{at:02}000\n", 100 + at * 37 % 97)).collect();
    let error = text_of("t.perf", &spans, &Options::default());
    assert!(error.contains("--deltatime") && error.contains("--file-order"), "{error}");
    let as_it_is = Options { file_order: true, ..Options::default() };
    assert_eq!(read("t.perf", spans.as_bytes(), &as_it_is).expect("readable").0.len(), 60);
    // One request ahead of all others, and requests of two processors, are put in order.
    let ahead: String =
        (0..60).map(|at| format!("a 7 0.{:06}: faults: 7f0{at:02}000\n", if at == 0 { 900 } else { at })).collect();
    assert_eq!(pages("t.perf", &ahead).1, ["reordered 59"]);
    // So are requests that were written when they were done, in whatever order.
    let done: String =
        (0..600).map(|at| format!("a 7 0.{:06}: faults: 7f0{at:03}000\n", at * 10 + at * 487 % 997)).collect();
    assert!(pages("t.perf", &done).1[0].starts_with("reordered 58"), "{:?}", pages("t.perf", &done).1);
}

#[test]
fn keys_of_each_command_of_redis_are_found() {
    let of = |line: &str| {
        let text = format!("1700000000.000001 [0 [::1]:5000] {line}\n");
        let mut reader = open_bytes("t.redis", text.into_bytes(), &Options::default()).expect("readable");
        let entries = reader.read_to_end().expect("readable");
        entries
            .iter()
            .map(|entry| format!("{}{}", entry.page(), if entry.write() { "w" } else { "r" }))
            .collect::<Vec<_>>()
    };
    for (line, expected) in [
        (r#""EXISTS" "1" "2" "3""#, &["1r", "2r", "3r"][..]),
        (r#""RENAME" "1" "2""#, &["1w", "2w"]),
        (r#""SUNIONSTORE" "1" "2" "3""#, &["1w", "2r", "3r"]),
        (r#""ZUNIONSTORE" "1" "2" "2" "3" "WEIGHTS" "4" "5""#, &["1w", "2r", "3r"]),
        (r#""COPY" "1" "2" "DB" "3""#, &["1r", "2w"]),
        (r#""BLPOP" "1" "2" "0""#, &["1w", "2w"]),
        (r#""XREAD" "COUNT" "2" "STREAMS" "1" "2" "0" "0""#, &["1r", "2r"]),
        (r#""bitop" "and" "1" "2" "3""#, &["1w", "2r", "3r"]),
        (r#""OBJECT" "ENCODING" "1""#, &["1r"]),
        (r#""BLMPOP" "0" "2" "1" "2" "LEFT""#, &["1w", "2w"]),
        (r#""MSET" "1" "x" "2" "y""#, &["1w", "2w"]),
        (r#""GETEX" "1""#, &["1w"]),
    ] {
        assert_eq!(of(line), expected, "{line}");
    }
    let text = "1.0 [0 a] \"GET\" \"1\"\n1.1 [0 a] \"FT.SEARCH\" \"i\" \"q\"\n1.2 [0 a] \"ping\"\n1.3 [0 a] \"ZUNION\" \"9\" \"1\"\n";
    let mut reader = open_bytes("t.redis", text.as_bytes().to_vec(), &Options::default()).expect("readable");
    reader.read_to_end().expect("readable");
    let said: Vec<String> = reader.remarks().iter().map(ToString::to_string).collect();
    assert_eq!(said[0], "1 command that neither reads nor writes is left out");
    assert!(said[1].starts_with("2 commands are left out") && said[1].ends_with("'FT.SEARCH', 'ZUNION'"), "{said:?}");
}

#[test]
fn requests_that_are_passed_on_count_for_two_devices() {
    let event = |device: &str, action: &str, rest: &str| format!("{device} 1 1 0.000000001 9 {action} R {rest}\n");
    let mapped = event("253,0", "Q", "0 + 8 [a]")
        + &event("8,0", "A", "2048 + 8 <- (253,0) 0")
        + &event("8,0", "Q", "2048 + 8 [a]");
    assert_eq!(pages("t.blkparse", &mapped).1, ["remapped_requests 1"]);
    // A partition is no device of its own.
    let partition = event("8,0", "A", "2048 + 8 <- (8,1) 0") + &event("8,0", "Q", "2048 + 8 [a]");
    assert_eq!(pages("t.blkparse", &partition), (vec![256], Vec::new()));
    let cut = event("8,0", "Q", "0 + 8 [a]") + "8,0 1 1 0.000000002 9 Q R 8 + 8";
    assert_eq!(pages("t.blkparse", &cut), (vec![0, 1], vec!["cut_line 1".to_owned()]));
}

#[test]
fn files_that_are_no_text_of_a_trace_are_told() {
    let mut tar = b"a.csv".to_vec();
    tar.resize(257, 0);
    tar.extend_from_slice(b"ustar  \0");
    tar.resize(1024, b'1');
    for (name, bytes, words) in [
        ("t.csv.gz", &tar[..], "tar -xOf"),
        ("t.csv", br#"{"time":1,"key":"a"}"#, "jq -r"),
        ("t", b"[ {\"time\": 1}]", "jq -r"),
        ("t.csv.lzma", &[0x5D, 0, 0, 0x80, 0], "xz -dc"),
        ("t.npy", b"\x93NUMPY\x01\0", "refault.Trace"),
        ("t.oracleGeneral", b"1,12345678901234,100000\n1,12345678901234,100000\n", "is text"),
        ("t.damo", b"PERFILE2", "perf script -i FILE`"),
    ] {
        let error = read(name, bytes, &Options::default()).expect_err(words);
        assert!(error.contains(words), "{name}: {error}");
    }
    // Keys may look like JSON.
    assert_eq!(pages("t.keys", "{\"user\":1}\n{\"user\":2}\n").0.len(), 2);
}

#[test]
fn separators_within_keys_do_not_part_columns() {
    let numbered = columns(|columns| {
        columns.object = Some("2".into());
        columns.operation = Some(String::new());
    });
    let unread = "unread_columns 2".to_owned();
    let (found, remarks) = read("t.csv", b"1,a;b;c;d,300\n2,a;b,300\n3,a;b;c;d,300\n", &numbered).expect("readable");
    assert!(found[0] == found[2] && found[0] != found[1], "{found:?}");
    assert_eq!(remarks, std::slice::from_ref(&unread));
    let (_, remarks) = read("t.csv", b"1,a;b,300\n2,a;c,300\n", &numbered).expect("readable");
    assert_eq!(remarks, [unread, "separator 1".to_owned()]);
    let said = columns(|columns| {
        columns.set("separator", "semicolon").expect("known");
        columns.set("object", "2").expect("known");
        columns.set("operation", "").expect("known");
    });
    let (found, remarks) = read("t.csv", b"1;a,b;300\n2;a,c;300\n", &said).expect("readable");
    assert!(found[0] != found[1], "{found:?}");
    assert_eq!(remarks, ["unread_columns 2"]);
    // Where two would do, those columns decide that were given by number.
    let sized = columns(|columns| {
        columns.object = Some("2".into());
        columns.size = Some("3".into());
        columns.operation = Some(String::new());
    });
    for text in ["1;a,b;300\n2;a,c;300\n", "1,a;b,300\n2,a;c,300\n"] {
        let (found, remarks) = read("t.csv", text.as_bytes(), &sized).expect("readable");
        assert!(found[0] != found[1], "{text}: {found:?}");
        assert_eq!(remarks, ["unread_columns 1"], "{text}");
    }
    assert!(columns(|_| {}).columns.clone().set("separator", "dot").is_err());
    assert_eq!(pages("t.csv", "sep=;\nop;page\nR;7\n"), (vec![7], Vec::new()));
    // A quote within a field is a letter.
    let (found, remarks) = pages("t.csv", "op,key,size\nget,5\"b,1\nget,5\"c,1\n");
    assert!(found[0] != found[1] && remarks.is_empty(), "{found:?} {remarks:?}");
}

#[test]
fn records_that_look_like_comments_are_told() {
    let keys = columns(|columns| {
        columns.object = Some("1".into());
        columns.size = Some("2".into());
        columns.operation = Some(String::new());
    });
    let (found, remarks) = read("t.csv", b"# key and size\n#a,100\nb,100\n#c,100\n# done\n", &keys).expect("readable");
    assert_eq!((found.len(), remarks), (1, vec!["comments 2".to_owned()]));
    assert_eq!(pages("t.csv", "# op,page\nop,page\nR,1\n").1, Vec::<String>::new());
}

#[test]
fn sizes_that_are_missing_are_not_taken_for_none() {
    let error = text_of("t.csv", "op,key,size\nget,a\n", &Options::default());
    assert!(error.contains("size is missing: the line has 2 fields, not 3"), "{error}");
    let sized = Options { objects: ObjectsAs::SizedIfKnown, ..Options::default() };
    let (_, remarks) = read("t.csv", b"op,key,size\nget,a,-1\nget,b,9000\n", &sized).expect("readable");
    assert_eq!(remarks, ["unsized_objects 1"]);
}

#[test]
fn the_operation_of_metas_cdn_is_a_fetch() {
    let text = "timestamp,cacheKey,OpType,objectSize,TTL\n1,7,1,100,0\n";
    let mut reader = open_bytes("t.csv", text.as_bytes().to_vec(), &Options::default()).expect("readable");
    assert!(!reader.read_to_end().expect("readable")[0].write());
    assert_eq!(pages("t.csv", text).1, ["time_unit 1"]);
}

#[test]
fn options_that_do_nothing_are_told() {
    let blocks = Options { block_bytes: Some(512), ..Options::default() };
    assert_eq!(read("t.csv", b"op,offset\nR,4096\n", &blocks).expect("readable").1, ["idle_option 1"]);
    assert!(read("t.csv", b"op,block\nR,8\n", &blocks).expect("readable").1.is_empty());
    let sized = Options { objects: ObjectsAs::Sized, skip_size_zero: true, ..Options::default() };
    assert_eq!(read("t.csv", b"op,lba\nR,8\n", &sized).expect("readable").1, ["idle_option 1", "idle_option 1"]);
    // Columns without names are told by their numbers.
    let mut reader = open_bytes("t.csv", b",page,op\n0,1,R\n".to_vec(), &Options::default()).expect("readable");
    reader.read_to_end().expect("readable");
    assert!(reader.remarks()[0].to_string().starts_with("columns that are not read: 1; "), "{:?}", reader.remarks());
    let error = text_of("t.csv", "op,address\nR,7f00a000\n", &Options::default());
    assert!(error.contains("0x before it"), "{error}");
}

#[test]
fn blanks_behind_commas_make_no_disk() {
    let text = "128166372003061629, hm, 1, Read, 0, 512, 1331\n128166372003061629,hm,1,Read,4096,512,1331\n";
    assert_eq!(pages("t.msr", text).0, [0, 1]);
}
