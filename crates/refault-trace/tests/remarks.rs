//! No silent guess: what readers leave out, reorder or assume is remarked on with its number, refused by
//! `Options::strict`, and never changes a figure without a word.

use refault_trace::{CsvColumns, Format, ObjectsAs, Options, TimeUnit, open_bytes};

/// Pages, and remarks as `code count`.
pub(crate) fn read(name: &str, bytes: &[u8], options: &Options) -> Result<(Vec<u64>, Vec<String>), String> {
    let mut reader = open_bytes(name, bytes.to_vec(), options).map_err(|error| error.to_string())?;
    let entries = reader.read_to_end().map_err(|error| error.to_string())?;
    let remarks = reader.remarks();
    let strict = Options { strict: true, ..options.clone() };
    let refused = open_bytes(name, bytes.to_vec(), &strict).and_then(|mut reader| reader.read_to_end());
    match remarks.first() {
        None => assert!(refused.is_ok(), "{name}: nothing is remarked, but strict refuses"),
        Some(first) => {
            let refused = refused.expect_err("strict refuses what is remarked").to_string();
            assert!(refused.contains("refused by --strict") && refused.contains(&first.to_string()), "{refused}");
        }
    }
    let remarks = remarks.iter().map(|remark| format!("{} {}", remark.doubt.code(), remark.count)).collect();
    Ok((entries.iter().map(|entry| entry.page()).collect(), remarks))
}

/// The same in the default options, where it can be read.
pub(crate) fn pages(name: &str, text: &str) -> (Vec<u64>, Vec<String>) {
    read(name, text.as_bytes(), &Options::default()).expect("readable")
}

pub(crate) fn columns(set: impl FnOnce(&mut CsvColumns)) -> Options {
    let mut columns = CsvColumns::default();
    set(&mut columns);
    Options { columns, ..Options::default() }
}

/// Text in which a time stands.
pub(crate) fn text_of(name: &str, text: &str, options: &Options) -> String {
    let opened = open_bytes(name, text.as_bytes().to_vec(), options);
    opened.and_then(|mut reader| reader.read_to_end()).expect_err("refused").to_string()
}

#[test]
fn disks_have_ranges_of_their_own() {
    let second = 1 << 36;
    let (found, remarks) =
        pages("t.csv", "Timestamp,Response,IOType,LUN,Offset,Size\n1.0,0.1,R,0,4096,4096\n2.0,,R,1,4096,4096\n");
    assert_eq!((found, remarks), (vec![1, second + 1], vec!["unread_columns 1".to_owned()]));
    // The names of MSR's columns tell that its times are Windows'.
    let msr = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n128166372003061629,h,0,Read,4096,4096,1\n\
               128166372016382155,h,1,Read,4096,4096,1\n";
    for name in ["t.csv", "t.msr", "t"] {
        assert_eq!(pages(name, msr).0, [1, (1 << 44) + 1], "{name}");
    }
    let named = columns(|columns| {
        columns.device = Some("1+2".into());
        columns.offset = Some("3".into());
        columns.operation = Some(String::new());
    });
    let (found, _) = read("t.csv", b"a,0,0\na,1,0\nb,0,0\na,0,4096\n", &named).expect("readable");
    assert_eq!(found, [0, second, 2 * second, 1]);
    let keyed = columns(|columns| {
        columns.device = Some("tenant".into());
        columns.object = Some("key".into());
    });
    let (found, _) = read("t.csv", b"tenant,key\n1,7\n2,7\n1,7\n", &keyed).expect("readable");
    assert!(found[0] == found[2] && found[0] != found[1], "{found:?}");
}

#[test]
fn the_disks_of_published_traces_are_known() {
    let second = 1 << 36;
    let alibaba = "3,R,4096,4096,1577808000000046\n4,W,4096,8192,1577808000100046\n";
    let tencent = "1538323200,8,8,0,1063\n1538323201,8,16,1,1064\n";
    let spc = "0,8,4096,R,0.551706\n1,8,8192,w,0.554041\n";
    for (format, text) in [(Format::Alibaba, alibaba), (Format::Tencent, tencent), (Format::Spc, spc)] {
        for name in [format.name().to_owned(), format!("t.{}", format.name()), "t.csv".to_owned()] {
            let (found, _) = pages(&name, text);
            assert_eq!(found, [1, second + 1, second + 2], "{name}");
        }
        let mut reader = open_bytes("t", text.as_bytes().to_vec(), &Options::default()).expect("found");
        let entries = reader.read_to_end().expect("readable");
        assert_eq!(entries.iter().map(|entry| entry.write()).collect::<Vec<_>>(), [false, true, true], "{format:?}");
    }
}

#[test]
fn units_of_time_are_named_or_told_and_never_saturate() {
    let text: String =
        (0..200).map(|i| format!("0,R,{},4096,{}\n", i * 4096, 1_577_808_000_000_046u64 + i * 1_000_000)).collect();
    let by_number = |unit| {
        columns(|columns| {
            columns.operation = Some("2".into());
            columns.offset = Some("3".into());
            columns.size = Some("4".into());
            columns.time = Some("5".into());
            columns.time_unit = unit;
            columns.unread = vec!["1".into()];
        })
    };
    let span = |unit| {
        let mut reader = open_bytes("a.csv", text.clone().into_bytes(), &by_number(unit)).expect("readable");
        reader.read_block(&mut Vec::new()).expect("readable");
        let time = reader.block_time().expect("timed");
        (time.last_ns - time.first_ns) / 1_000_000_000
    };
    assert_eq!((span(None), span(Some(TimeUnit::Microseconds))), (199, 199));
    let remarks = |unit| read("a.csv", text.as_bytes(), &by_number(unit)).expect("readable").1;
    assert_eq!(remarks(None), ["time_unit 1"]);
    assert_eq!(remarks(Some(TimeUnit::Microseconds)), Vec::<String>::new());
    let error = text_of("a.csv", &text, &by_number(Some(TimeUnit::Seconds)));
    assert!(error.contains("more than 584 years in seconds") && error.contains("time_us="), "{error}");
}

#[test]
fn times_that_go_back_are_sorted_or_refused() {
    let options = columns(|columns| columns.operation = Some(String::new()));
    let (found, remarks) = read("t.csv", b"time_s,page\n5,1\n7,2\n6,3\n8,4\n", &options).expect("sorted");
    assert_eq!((found, remarks), (vec![1, 3, 2, 4], vec!["reordered 1".to_owned()]));
    let days = "time_s,page\n5,1\n99999,2\n6,3\n";
    let error = text_of("t.csv", days, &options);
    assert!(error.contains("line 4: the time goes back by 99993 s") && error.contains("--file-order"), "{error}");
    let as_is = Options { file_order: true, ..options };
    let (found, remarks) = read("t.csv", days.as_bytes(), &as_is).expect("as it is");
    assert_eq!((found, remarks), (vec![1, 2, 3], vec!["times_go_back 1".to_owned()]));
    // Two runs of blkparse in one file.
    let run = |from: u64| -> String {
        (0..5).map(|i| format!("8,0 1 {i} {}.000000000 7 Q R {} + 8 [x]\n", from + i, i * 8)).collect()
    };
    let error = text_of("t.blkparse", &format!("{}{}", run(10), run(0)), &Options::default());
    assert!(error.contains("the time goes back by 14 s"), "{error}");
}

#[test]
fn targets_of_damo_are_read_by_time() {
    let line = |time: u64, target: u64, page: u64| {
        let (start, end) = (page * 4096, (page + 1) * 4096);
        format!(
            "kdamond.x xxxx xxxx {time}.5: damon:damon_aggregated: target_id={target} nr_regions=1 {start}-{end}: 3 0\n"
        )
    };
    let by_target: String =
        [0, 1].iter().flat_map(|target| (0..100).map(move |time| line(time, *target, time))).collect();
    let by_time: String = (0..100).flat_map(|time| [0, 1].map(|target| line(time, target, time))).collect();
    assert_eq!(pages("t.damo", &by_target), pages("t.damo", &by_time));
    // damo ends a record of one snapshot by one that it makes up.
    let one = format!(
        "{}kdamond.x xxxx xxxx 9.5: damon:damon_aggregated: target_id=0 nr_regions=1 0-0: -1 -1\n",
        line(1, 0, 7)
    );
    assert_eq!(pages("t.damo", &one), (vec![7], vec!["made_up_snapshots 1".to_owned()]));
    assert_eq!(pages("t.perf", &one).0, [7], "DAMON's events in what is called perf's");
    let asked = Options { format: Some(Format::Perf), ..Options::default() };
    assert!(text_of("t.perf", &one, &asked).contains("--trace-format damo"));
    let unsaid = br#"[{"target_id": 0, "snapshots": [{"end_time": 1, "regions": [{"start": 4096, "end": 8192,
        "nr_accesses": {"samples": null, "percent": 100.0}}]}]}]"#;
    assert_eq!(read("t.damo", unsaid, &Options::default()).map(|(pages, _)| pages), Ok(vec![1]));
}

#[test]
fn operations_sizes_and_times_to_live_are_counted() {
    let (found, remarks) = pages("t.csv", "key,op,size,ttl\n1,1,5,0\n2,0,0,60\n3,delete,5,0\n");
    assert_eq!(found, [1, 2]);
    let expected = ["operation_numbers 2", "deletions 1", "times_to_live 1", "empty_objects 1"];
    assert_eq!(remarks, expected);
    let (found, remarks) = pages("t.twitter", "0,a,1,5,1,set,5\n9,a,1,5,1,get,0\n9,a,1,5,1,delete,0\n");
    assert_eq!((found.len(), remarks), (2, vec!["deletions 1".to_owned(), "times_to_live 1".to_owned()]));
    let skip = Options { skip_size_zero: true, ..columns(|columns| columns.operation = Some(String::new())) };
    let (found, remarks) = read("t.csv", b"object,size\n7,5\n8,0\n8,0\n7,5\n", &skip).expect("readable");
    assert_eq!((found, remarks), (vec![7, 7], vec!["empty_objects_left_out 2".to_owned()]));
    let (_, remarks) = pages("t.csv", "page,write\n1,0\n2,1\n");
    assert_eq!(remarks, Vec::<String>::new(), "what 0 and 1 mean is said by the name");
    assert_eq!(pages("t.csv", "page\n1\n2\n").1, ["no_operations 2"]);
    assert_eq!(pages("t.msr", "1,h,0,Read,0,0,1\n2,h,0,Read,0,1,1\n").1, ["empty_requests 1"]);
}

#[test]
fn sizes_count_if_the_trace_says_them() {
    let sized =
        Options { objects: ObjectsAs::SizedIfKnown, ..columns(|columns| columns.operation = Some(String::new())) };
    let (found, remarks) = read("t.csv", b"object,size\n1,8192\n2,100\n1,4096\n3,\n", &sized).expect("readable");
    assert_eq!(found, [0, 1, 2, 0, 3]);
    assert_eq!(remarks, ["unsized_objects 1", "changed_sizes 1"]);
    let (found, remarks) = read("t.csv", b"object\n7\n8\n", &sized).expect("readable");
    assert_eq!((found, remarks), (vec![7, 8], Vec::new()), "without sizes an object is a page");
    let mut reader = open_bytes("t.csv", b"object,size\n1,8192\n2,100\n".to_vec(), &sized).expect("readable");
    reader.read_to_end().expect("readable");
    let objects = reader.objects().expect("of objects");
    assert_eq!((objects.sized, objects.accesses, objects.bytes), (true, 2, Some(8292)));
}

#[test]
fn a_trace_of_objects_is_not_taken_for_blocks() {
    let tr: String = (0..90).map(|i| format!("{i} {} {} {}\n", i * 7 % 50, 1000 + i * 7 % 50, i % 3)).collect();
    let (found, remarks) = pages("objects", &tr);
    assert_eq!(found.len(), 90);
    assert_eq!(remarks, ["format_by_contents 1", "unread_columns 1"]);
    let mut distinct = found;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 50);
    assert_eq!(pages("t.tr", "1 7 100\n2 8 100\n"), (vec![7, 8], Vec::new()));
    assert_eq!(pages("blocks", "7 3 0 0\n8 1 0 1\n").0, [7, 8, 9, 8]);
    // Neither: the first number falls, the third is not 0.
    let error = text_of("t", "9 1 5 0\n2 1 6 1\n", &Options::default());
    assert!(error.contains("cannot tell its format"), "{error}");
    // Columns that are named are those of CSV, parted by blanks.
    let named = columns(|columns| columns.object = Some("2".into()));
    assert_eq!(read("t", tr.as_bytes(), &named).expect("readable").0.len(), 90);
}

#[test]
fn advice_works_when_it_is_followed() {
    let spc = "0,20941264,8192,X,0.5\n0,20939840,8192,X,0.6\n";
    let error = text_of("t.csv", spc, &Options::default());
    assert!(error.contains("1 '0', 2 '20941264', 3 '8192', 4 'X', 5 '0.5'"), "{error}");
    assert!(error.contains("--columns object=2"), "{error}");
    let followed = columns(|columns| columns.object = Some("2".into()));
    assert_eq!(read("t.csv", spc.as_bytes(), &followed).map(|(pages, _)| pages), Ok(vec![20_941_264, 20_939_840]));
    let error = text_of("t.csv", spc, &columns(|columns| columns.page = Some("0".into())));
    assert!(error.contains("there is no column 0: the line has 5: 1 '0'"), "{error}");
}

#[test]
fn blkparse_with_only_some_actions_is_read() {
    let event = |action: &str, sector: u64| format!("8,0 1 1 {sector}.000000000 7 {action} R {sector} + 8 [x]\n");
    let of = |actions: &[&str]| -> String {
        [8, 16].iter().flat_map(|sector| actions.iter().map(move |action| event(action, *sector))).collect()
    };
    assert_eq!(pages("t.blkparse", &of(&["Q", "D", "C"])), (vec![1, 2], Vec::new()));
    assert_eq!(pages("t.blkparse", &of(&["D", "C"])), (vec![1, 2], vec!["taken_at_issue 2".to_owned()]));
    assert_eq!(pages("t.blkparse", &of(&["C"])), (vec![1, 2], vec!["taken_at_completion 2".to_owned()]));
    let none = text_of("t.blkparse", &of(&["G"]), &Options::default());
    assert!(none.contains("no line is an event Q, D or C"), "{none}");
    let binary = open_bytes("tr.blktrace.0", b"\x07tae\0\0\0\0".to_vec(), &Options::default());
    assert!(binary.err().expect("refused").to_string().contains("blkparse -i"));
}

#[test]
fn perf_is_read_in_the_orders_of_fields_that_people_print() {
    let data = "python3 10832 69707.446255: page-faults:  7fa981a33000 [unknown] 5556a8c5819e main\n";
    assert_eq!(pages("t.perf", data).0, [0x7_fa98_1a33]);
    for line in
        ["  7fa981a33000\n", "python3 7fa981a33000\n", "69707.446255: 7fa981a33000\n", "12/12 69707.4: 7fa981a33000\n"]
    {
        assert_eq!(pages("t.perf", line).0, [0x7_fa98_1a33], "{line}");
    }
    let two = text_of("t.perf", "69707.4: 1000003 7fa981a33000\n", &Options::default());
    assert!(two.contains("perf script -F comm,pid,time,event,addr"), "{two}");
    let kernel = "ls 1 1.5: page-faults: ffffffff81000000\nls 1 1.6: page-faults: 0\n";
    assert_eq!(pages("t.perf", kernel).1, ["no_address 1", "kernel_addresses 1"]);
    let code: String =
        (0..2000u64).map(|i| format!("ls 1 {i}.5: page-faults: {:x}\n", 0x55_5555_0000_u64 + i % 8)).collect();
    assert_eq!(pages("t.perf", &code).1, ["few_faulted_pages 2000"]);
    let none = text_of("t.perf", "hello there\n", &Options::default());
    assert!(none.contains("no line has an event with an address"), "{none}");
}

#[test]
fn a_first_line_without_numbers_is_said_to_be_a_header() {
    let keys = columns(|columns| {
        columns.object = Some("1".into());
        columns.operation = Some("2".into());
    });
    let (found, remarks) = read("t.csv", b"a,get\nb,get\na,get\n", &keys).expect("readable");
    assert_eq!((found.len(), remarks), (2, vec!["first_line_is_header 1".to_owned()]));
}
