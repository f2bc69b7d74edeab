//! Lines, records and packed files that are not as the first ones are: each kind is remarked on or refused, and what can
//! be told apart is not taken for one.

use std::io::Write;

use refault_trace::remark::Doubt;
use refault_trace::statistics::{Resolution, TraceStatistics};
use refault_trace::write::{OutputFormat, TraceWriter};
use refault_trace::{Format, ObjectsAs, Options, Source, UNKNOWN_BYTES, open, open_bytes};

use crate::remarks::{columns, pages, read, text_of};

/// An lz4 file as its tool writes one, with blocks of 64 KiB.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut packed = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    packed.write_all(bytes).expect("packed");
    packed.finish().expect("packed")
}

#[test]
fn a_packed_file_that_was_cut_anywhere_is_refused() {
    let numbers: Vec<u8> = (0..40_000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("a compressor");
    zstd.write_all(&numbers).expect("packed");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&numbers).expect("packed");
    let packed = [
        ("t.text.lz4", lz4(&numbers)),
        ("t.text.zst", zstd.finish().expect("packed")),
        ("t.text.gz", gzip.finish().expect("packed")),
    ];
    for (name, whole) in packed {
        let options = Options::default();
        assert_eq!(read(name, &whole, &options).map(|(pages, _)| pages.len()), Ok(40_000), "{name}");
        // Also between two blocks, and before the mark of the end: where the decoder sees nothing amiss.
        for cut in (40..whole.len()).step_by(97).chain(whole.len() - 9..whole.len()) {
            let why = read(name, &whole[..cut], &options).expect_err("refused");
            assert!(why.contains("truncated") || cut < 64, "{name} cut to {cut} of {}: {why}", whole.len());
        }
        let twice = [&whole[..], &whole].concat();
        assert_eq!(read(name, &twice, &options).map(|(pages, _)| pages.len()), Ok(80_000), "{name}");
    }
    // The legacy form, which has no mark of its end: a block and a bit, and the same again behind it.
    let block = |numbers: &[u8]| {
        let packed = lz4_flex::block::compress(numbers);
        [&(packed.len() as u32).to_le_bytes()[..], &packed].concat()
    };
    let many: Vec<u8> = (0..1_200_000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    let (first, second) = many.split_at(8 << 20);
    let legacy = [&[0x02, 0x21, 0x4C, 0x18][..], &block(first), &block(second)].concat();
    assert_eq!(read("t.text.lz4", &legacy, &Options::default()).map(|(pages, _)| pages.len()), Ok(1_200_000));
    let cut = read("t.text.lz4", &legacy[..legacy.len() - 5], &Options::default()).expect_err("refused");
    assert!(cut.contains("truncated"), "{cut}");
    let short = [&[0x02, 0x21, 0x4C, 0x18][..], &block(b"1\n2\n")].concat();
    let twice = [&short[..], &short].concat();
    assert_eq!(read("t.text.lz4", &twice, &Options::default()).map(|(pages, _)| pages), Ok(vec![1, 2, 1, 2]));
    // A frame of nothing between two others.
    let parts = [lz4(b"1\n2\n"), lz4(b""), lz4(b"3\n")].concat();
    assert_eq!(read("t.text.lz4", &parts, &Options::default()).map(|(pages, _)| pages), Ok(vec![1, 2, 3]));
}

#[test]
fn lines_that_are_not_as_the_first_are_counted() {
    // The key holds the separator: two keys would be one.
    let (found, remarks) = pages("t.csv", "op,size,key\nget,10,a,b\nget,10,a,c\nget,10,d,\n");
    assert!(found[0] == found[1] && found[0] != found[2], "{found:?}");
    assert_eq!(remarks, ["extra_fields 2"]);
    let (found, remarks) = pages("t.csv", "op,size,key\nget,10,\"a,b\"\nget,10,\"a,c\"\n");
    assert!(found[0] != found[1] && remarks.is_empty(), "{found:?} {remarks:?}");
    // A range behind the size, which the first line has not.
    let ranges = "1 REST.PUT.OBJECT 8d4f 1056\n2 REST.GET.OBJECT 8d4f 1056 0 500\n3 REST.GET.OBJECT 8d4f\n";
    assert_eq!(pages("t.ibm", ranges).1, ["extra_fields 1", "unsized_accesses 1"]);
    // Two files in one.
    let (found, remarks) = pages("t.csv", "op,key\nget,1\nop,key\nget,2\n");
    assert_eq!((found, remarks), (vec![1, 2], vec!["repeated_headers 1".to_owned()]));
    assert_eq!(pages("t.lis", "0 1 7 1\n1 1 0 2\n").1, ["ignored_numbers 1"]);
    let error = text_of("t.csv", "op,page\rR,1\rR,2\r", &Options::default());
    assert!(error.contains("tr '\\r' '\\n'"), "{error}");
    let wide: Vec<u8> = "op,page\nR,1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let error = read("t.csv", &[b"\xFF\xFE".to_vec(), wide].concat(), &Options::default()).expect_err("refused");
    assert!(error.contains("iconv -f UTF-16"), "{error}");
    let u64s = read("t.u64", &0xFEFFu64.to_le_bytes(), &Options::default());
    assert_eq!(u64s.map(|(pages, _)| pages), Ok(vec![0xFEFF]), "pages are no text");
}

#[test]
fn a_record_is_not_taken_for_names_of_columns() {
    let numbered = columns(|columns| {
        columns.offset = Some("2".into());
        columns.size = Some("3".into());
        columns.operation = Some("1".into());
    });
    let text = b"write,0,4096\nread,4096,4096\nwrite,8192,4096\n";
    assert_eq!(read("t.csv", text, &numbered), Ok((vec![0, 1, 2], Vec::new())));
    let unsaid = columns(|columns| columns.offset = Some("2".into()));
    let (found, remarks) = read("t.csv", text, &unsaid).expect("readable");
    assert_eq!(found, [0, 1, 2]);
    assert_eq!(remarks, ["unread_columns 2", "no_operations 3"]);
    // It has both a usual name and numbers.
    let (_, remarks) = pages("t.csv", "op,url,7\nget,5,7\n");
    assert_eq!(remarks, ["first_line_is_header 1", "unread_columns 1"]);
}

#[test]
fn sectors_of_a_published_trace_are_sectors_with_its_header_too() {
    let lines = "1538323200,8,8,0,1063\n1538323201,8,16,1,1064\n";
    for header in ["", "Timestamp,Offset,Size,IOType,VolumeID\n", "timestamp,offset,size,iotype,volumeid\n"] {
        for name in ["t.csv", "t.tencent", "t"] {
            let (found, _) = pages(name, &format!("{header}{lines}"));
            assert_eq!(found, [1, (1 << 36) + 1, (1 << 36) + 2], "{name} {header}");
        }
    }
}

#[test]
fn units_operations_and_numbers_that_are_assumed_are_said() {
    let code = |text: &str| pages("t.csv", text).1;
    assert_eq!(code("timestamp,page,op\n0,1,R\n15,2,R\n"), ["time_unit 1"], "not said to be seconds");
    assert_eq!(code("time_us,page,op\n0,1,R\n15,2,R\n"), Vec::<String>::new());
    let reads = columns(|columns| columns.operation = Some("is_read".into()));
    let remarks = read("t.csv", b"page,is_read\n1,true\n2,False\n", &reads).expect("readable").1;
    assert_eq!(remarks, ["operation_numbers 2"], "true is a number here");
    assert_eq!(code("page,is_write\n1,true\n2,False\n"), Vec::<String>::new());
    assert_eq!(code("op,lba,size,nr_sectors\nR,0,4096,8\nR,16,4096,16\n"), ["unequal_counts 1"]);
    assert_eq!(code("op,page,size\nR,1,8192\nR,2,4096\n"), ["sizes_of_pages 1"]);
    assert_eq!(code("op,object\nget,7\nget,007\nget,0x7\nget,7.0\n"), ["odd_numbers 3"]);
    assert_eq!(code("op,object\nget,0x7\nget,0x8\n"), Vec::<String>::new(), "all are written alike");
    assert_eq!(code("op,object\nget,7\nget,007\nget,ab\n"), Vec::<String>::new(), "names");
    let error = text_of("t.csv", "time,page\n2020-01-01T00:00:00Z,1\n", &Options::default());
    assert!(error.contains("--columns time="), "{error}");
}

#[test]
fn records_that_count_often_and_large_objects_are_read() {
    let options = Options { objects: ObjectsAs::SizedIfKnown, ..Options::default() };
    let text = b"key,op,size,op_count,key_size\nA,GET,1048566,5,10\nB,GET,90,2000000,10\nC,GET,90,0,10\n".to_vec();
    let mut reader = open_bytes("t.csv", text, &options).expect("readable");
    let (mut accesses, mut block) = (0, Vec::new());
    while reader.read_block(&mut block).expect("readable") > 0 {
        accesses += block.len();
    }
    assert_eq!(accesses, 5 * 256 + 2_000_000);
    let objects = reader.objects().expect("of objects");
    assert_eq!((objects.accesses, objects.bytes), (2_000_005, Some(5 * 1_048_576 + 2_000_000 * 100)));
    assert_eq!(reader.remarks()[0].doubt.code(), "no_transfers");
    // More than 4 GiB: one page, or an error that says so.
    let large = "op,object,size\nget,7,5368709120\n";
    assert_eq!(pages("t.csv", large), (vec![7], Vec::new()));
    let error = text_of("t.csv", large, &options);
    assert!(error.contains("--objects-one-page-each"), "{error}");
}

#[test]
fn what_processes_devices_and_threads_share_is_said() {
    let sample = |process: &str, i: u64| format!("          python {process} {i}.5: page-faults:   7f0000001000\n");
    let one = format!("{}{}", sample("7", 1), sample("7", 2));
    assert_eq!(pages("t.perf", &one), (vec![0x7_f000_0001; 2], Vec::new()));
    let threads = format!("{}{}", sample("7/7", 1), sample("7/8 [001]", 2));
    assert_eq!(pages("t.perf", &threads).1, Vec::<String>::new());
    let two = format!("{}{}", sample("7/7", 1), sample("8/8 [001]", 2));
    assert_eq!(pages("t.perf", &two).1, ["several_processes 2"]);
    let other =
        format!("{one}          python 7 3.5: sched:sched_switch: prev_comm=python\n\tffffffff81 chain+0x1 (x)\n");
    assert_eq!(pages("t.perf", &other).1, ["no_address 1"], "of a sample, though blanks stand before it");
    let lackey = "==10== Lackey\n L 1000,4\n==11== Lackey\n L 1000,4\n L 1000,0\n";
    assert_eq!(pages("t.lackey", lackey), (vec![1, 1], vec!["empty_requests 1".into(), "several_processes 2".into()]));
    // Of the second disk nothing was queued.
    let event = |disk: u64, action: &str| format!("  8,{disk} 1 1 1.000000000 7 {action} R 8 + 8 [x]\n");
    let disks = [event(0, "Q"), event(16, "D"), event(16, "C"), event(0, "D")].concat();
    assert_eq!(pages("t.blkparse", &disks), (vec![1], vec!["other_devices 1".to_owned()]));
    // Each of DAMON's threads numbers its targets from 0.
    let record = |thread: u64| {
        format!(
            r#"{{"kdamond_idx": {thread}, "context_idx": 0, "target_id": 0, "snapshots": [{{"end_time": 1, "regions":
            [{{"start": 4096, "end": 8192, "nr_accesses": {{"samples": 1}}}}]}}]}}"#
        )
    };
    let line = |thread: u64| {
        format!("kdamond.{thread} 1 1.5: damon:damon_aggregated: target_id=0 nr_regions=1 4096-8192: 3 0\n")
    };
    for text in [format!("[{}, {}]", record(0), record(1)), format!("{}{}", line(0), line(1))] {
        assert_eq!(pages("t.damo", &text).0, [1, (1 << 44) + 1]);
    }
}

#[test]
fn operations_and_tenants_of_lcs_are_looked_at() {
    const MARK: u64 = 0x1234_5678_9abc_def0;
    let mut bytes = [MARK.to_le_bytes(), 3u64.to_le_bytes()].concat();
    bytes.resize(8192 - 8, 0);
    bytes.extend(MARK.to_le_bytes());
    for (operation, tenant) in [(1u32, 0u32), (255, 0), (3, 1), (1, 2)] {
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(7u64.to_le_bytes());
        bytes.extend(100u64.to_le_bytes());
        bytes.extend((operation | tenant << 8).to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend((-2i64).to_le_bytes());
    }
    let (found, remarks) = read("t", &bytes, &Options::default()).expect("readable");
    assert_eq!((found, remarks), (vec![7; 4], vec!["unknown_operations 1".into(), "other_tenants 2".into()]));
}

#[test]
fn objects_keep_their_sizes_through_csv() {
    let text: String = (0..30).map(|i| format!("get,{},1048576\n", 1 + i % 3)).collect();
    let text = format!("op,object,size\n{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let sized = Options { objects: ObjectsAs::SizedIfKnown, ..Options::default() };
    let original = read("t.csv", text.as_bytes(), &sized).expect("readable").0;
    assert_eq!(original.len(), 30 * 256);
    for (name, format) in [("t.csv", OutputFormat::Csv), ("t.oracleGeneral", OutputFormat::OracleGeneral)] {
        let path = folder.path().join(name);
        let file = std::fs::File::create_new(&path).expect("a new file");
        let mut writer = TraceWriter::new(file, &path, format).expect("a writer");
        let mut reader = open_bytes("t.csv", text.clone().into_bytes(), &Options::default()).expect("readable");
        let mut entries = Vec::new();
        while reader.read_block(&mut entries).expect("readable") > 0 {
            writer.write(refault_trace::write::Block::of(&*reader, &entries)).expect("written");
        }
        writer.finish().expect("written");
        let again = open(&path, &sized).and_then(|mut reader| reader.read_to_end()).expect("readable");
        assert_eq!(again.iter().map(|entry| entry.page()).collect::<Vec<_>>(), original, "{name}");
    }
}

#[test]
fn records_without_a_size_are_as_large_as_their_object() {
    let options = Options { objects: ObjectsAs::SizedIfKnown, ..Options::default() };
    let text = "1 REST.PUT.OBJECT a 9000\n2 REST.GET.OBJECT a\n3 REST.GET.OBJECT b\n";
    let (found, remarks) = read("t.ibm", text.as_bytes(), &options).expect("readable");
    assert_eq!((found, remarks), (vec![0, 1, 2, 0, 1, 2, 3], vec!["unsized_objects 2".to_owned()]));
    // Where some do not say theirs, there is no sum of all.
    let lines = |size: &str| (0..70_000).map(|i| format!("get,{},{size}\n", i % 9)).collect::<String>();
    let text = format!("op,object,size\n{}{}", lines("5000"), lines(""));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    std::fs::write(&path, text).expect("written");
    let source = Source::file(&path, Options::default());
    let statistics = TraceStatistics::of(&source, Resolution::default(), |_| ()).expect("readable");
    assert_eq!((statistics.accesses, statistics.bytes), (140_000, None));
}

#[test]
fn a_trace_without_accesses_says_what_its_lines_are() {
    let of = |name: &str, text: &str| text_of(name, text, &Options::default());
    assert!(of("t.msr", "1,h,0,Read,0,0,1\n").contains("has no accesses: 1 request of 0 bytes is left out"));
    assert!(of("t.csv", "op,page\ntrim,1\nflush,2\n").contains("1 deletion is left out: it is no access; 1 command"));
    assert!(of("t.iolog", "fio version 2 iolog\n/f add\n/f trim 0 4096\n").contains("1 command"));
}

#[test]
fn what_does_not_fit_is_not_made_to_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.oracleGeneral");
    let file = std::fs::File::create_new(&path).expect("a new file");
    let mut writer = TraceWriter::new(file, &path, OutputFormat::OracleGeneral).expect("a writer");
    let text = b"op,object,size\nget,7,5368709120\n".to_vec();
    let mut reader =
        open_bytes("t.csv", text, &Options { format: Some(Format::Csv), ..Options::default() }).expect("open");
    let mut entries = Vec::new();
    reader.read_block(&mut entries).expect("readable");
    let error = writer.write(refault_trace::write::Block::of(&*reader, &entries)).expect_err("more than 32 bits");
    assert!(error.to_string().contains("5368709120 has more than the 32 bits"), "{error}");
}

#[test]
fn an_access_without_a_size_takes_no_other_ones_away() {
    // One of many, in the second block; then a whole first block of them.
    for (first, last) in [(70_000u64, 70_001u64), (0, 66_000)] {
        let sized = |at: &u64| !(first..last).contains(at);
        let lines = (0..140_000u64).map(|at| format!("{},{}\n", at % 900, if sized(&at) { "700" } else { "-" }));
        let text = format!("key,size\n{}", lines.collect::<String>());
        let mut reader = open_bytes("t.csv", text.clone().into_bytes(), &Options::default()).expect("readable");
        let (mut block, mut sizes) = (Vec::new(), Vec::new());
        while reader.read_block(&mut block).expect("readable") > 0 {
            sizes.extend_from_slice(reader.block_bytes().expect("a column of sizes"));
        }
        let expected = (0..140_000u64).map(|at| if sized(&at) { 700 } else { UNKNOWN_BYTES });
        assert!(sizes.into_iter().eq(expected), "from {first}");
        assert_eq!(reader.remarks()[1].doubt, Doubt::UnsizedAccesses);
        assert_eq!(reader.remarks()[1].count, last - first);
        let objects = reader.objects().expect("objects");
        assert_eq!((objects.unsized_accesses, objects.mean_bytes()), (last - first, Some(700.0)));
    }
    // A page of which the size is not said, and what no format of sizes was asked for.
    assert_eq!(pages("t.csv", "page,size,op\n1,,r\n2,5,r\n"), (vec![1, 2], vec!["unsized_accesses 1".to_owned()]));
}

#[test]
fn successive_accesses_as_one_keep_the_first_time_and_the_largest_size() {
    let text = "time_s,key,size,op\n1,7,10,get\n2,7,30,get\n3,7,20,set\n4,8,-,get\n5,8,5,get\n6,7,1,get\n";
    let options = Options { collapse: true, ..Options::default() };
    let mut reader = open_bytes("t.csv", text.as_bytes().to_vec(), &options).expect("readable");
    let (mut block, mut found) = (Vec::new(), Vec::new());
    while reader.read_block(&mut block).expect("readable") > 0 {
        let (bytes, times) = (reader.block_bytes().expect("sizes"), reader.block_times().expect("times"));
        let seconds = times.iter().map(|time| time / 1_000_000_000);
        found.extend(
            block.iter().zip(bytes).zip(seconds).map(|((entry, bytes), s)| (entry.page(), entry.write(), *bytes, s)),
        );
    }
    assert_eq!(found, [(7, true, 30, 1), (8, false, 5, 4), (7, false, 1, 6)]);
}

#[test]
fn what_says_no_size_is_not_taken_for_a_large_one() {
    let record = |size: u64, ttl: i32| {
        let parts =
            [&7u32.to_le_bytes()[..], &9u64.to_le_bytes(), &size.to_le_bytes(), &[1, 0, 0, 0], &ttl.to_le_bytes()];
        [&parts.concat()[..], &(-1i64).to_le_bytes()].concat()
    };
    let mut lcs = vec![0; 8192];
    lcs[..8].copy_from_slice(&0x1234_5678_9abc_def0_u64.to_le_bytes());
    lcs[8..16].copy_from_slice(&3u64.to_le_bytes());
    lcs[8184..].copy_from_slice(&0x1234_5678_9abc_def0_u64.to_le_bytes());
    let whole = [&lcs[..], &record(500, 60), &record(u64::MAX, -1), &record(500, 0)].concat();
    let (found, remarks) = read("t.lcs", &whole, &Options::default()).expect("readable");
    assert_eq!((found.len(), remarks), (3, vec!["times_to_live 1".to_owned(), "unsized_accesses 1".to_owned()]));
    let sized = Options { objects: ObjectsAs::SizedIfKnown, ..Options::default() };
    let (_, remarks) = read("t.lcs", &whole, &sized).expect("readable");
    assert_eq!(remarks, ["times_to_live 1", "unsized_objects 1"]);
    // Another file behind it.
    let error = read("t.lcs", &[&whole[..], &whole].concat(), &Options::default()).expect_err("refused");
    assert!(
        error.contains("header of another LCS trace") && error.contains(&format!("offset {}", whole.len())),
        "{error}"
    );
    let oracle =
        [&7u32.to_le_bytes()[..], &9u64.to_le_bytes(), &u32::MAX.to_le_bytes(), &(-1i64).to_le_bytes()].concat();
    let (_, remarks) = read("t.oracleGeneral", &oracle, &Options::default()).expect("readable");
    assert_eq!(remarks, ["unsized_accesses 1"]);
}

#[test]
fn sizes_in_sectors_are_seen_and_those_of_memory_count() {
    let sectors = "time_s,lba,size,op\n0,0,256,r\n1,256,256,r\n2,512,8,r\n";
    assert_eq!(pages("t.csv", sectors).1, ["parts_of_blocks 3"]);
    assert!(pages("t.csv", "time_s,lba,size,op\n0,0,4096,r\n1,8,512,r\n").1.is_empty());
    assert!(pages("t.csv", "time_s,lba,count,op\n0,0,256,r\n").1.is_empty());
    let pin = "0x7f3a: R 0x1ffc  8 0x11\n0x7f3e: W 0x3000\n0x7f3e: R 0x4ffe 0x11\n";
    assert_eq!(pages("t.pin", pin), (vec![1, 2, 3, 4], Vec::new()));
    assert!(text_of("t.pin", "0x7f3a: R 0x1ffc eight\n", &Options::default()).contains("R address [size [value]]"));
}

#[test]
fn times_to_live_are_counted_in_each_format() {
    let said = |text: &str| pages("t.redis", text).1;
    let line = |command: &str| format!("1700000000.1 [0 127.0.0.1:5] {command}\n");
    for lives in [
        "\"SET\" \"a\" \"v\" \"ex\" \"9\"",
        "\"SETEX\" \"a\" \"9\" \"v\"",
        "\"PEXPIRE\" \"a\" \"9\"",
        "\"GETEX\" \"a\" \"PX\" \"9\"",
    ] {
        assert_eq!(said(&line(lives)), ["times_to_live 1"], "{lives}");
    }
    for stays in ["\"SET\" \"ex\" \"px\"", "\"SET\" \"a\" \"v\" \"KEEPTTL\"", "\"PERSIST\" \"a\""] {
        assert!(said(&line(stays)).is_empty(), "{stays}");
    }
    assert_eq!(pages("t.csv", "key,op,ttl\n1,get,300.0\n2,get,0.0\n3,get,-1\n4,get,\n").1, ["times_to_live 1"]);
}

#[test]
fn spellings_of_numbers_are_counted_among_a_few_names() {
    let odd = |keys: &str| pages("t.csv", &format!("key,op\n{}", keys.replace(' ', ",get\n"))).1;
    for (keys, count) in
        [("100000 1e+05 ", 1), ("7 007 - ", 1), ("7 +7 7.0 1E5 0x7 ", 4), ("7 8 n/a 07 ", 1), ("7 - ? 07 ", 1)]
    {
        assert_eq!(odd(keys), [format!("odd_numbers {count}")], "{keys}");
    }
    for keys in ["3fa9 1e05 77 9c0d ", "7 8 9 ", "a07 07 b ", "1e05 2e07 "] {
        assert!(odd(keys).is_empty(), "{keys}");
    }
}

#[test]
fn a_published_trace_that_ends_within_a_line_may_be_cut() {
    for (name, text) in [
        ("t.tencent", "1538323200,8,8,0,1063\n1538323201,8,16,1,106"),
        ("t.spc", "0,20,512,R,0.551706\n0,28,512,R,1.5"),
        ("t.msr", "128166372003061629,src1,0,Read,8192,4096,10\n128166372003061630,src1,0,Read,8192,4096,1"),
    ] {
        assert!(pages(name, text).1.contains(&"cut_line 1".to_owned()), "{name}");
    }
    assert!(pages("t.csv", "page,op\n1,r").1.is_empty(), "CSV need not end its last line");
}

#[test]
fn times_that_damo_writes_in_units_are_read_whole() {
    let record = |times: &[&str]| {
        let snapshot = |end: &&str| {
            format!(
                r#"{{"start_time": "0 ns", "end_time": "{end}", "regions": [{{"start": "4,096", "end": "8,192 B", "nr_accesses": {{"samples": 1}}}}]}}"#
            )
        };
        let snapshots: Vec<String> = times.iter().map(snapshot).collect();
        format!(r#"[{{"target_id": 0, "snapshots": [{}]}}]"#, snapshots.join(","))
    };
    let times = |texts: &[&str]| {
        let mut reader = open_bytes("t.damo", record(texts).into_bytes(), &Options::default()).expect("readable");
        reader.read_block(&mut Vec::new()).expect("readable");
        reader.block_times().expect("times").to_vec()
    };
    let found = times(&["59 s 500 ms", "1 m", "1 m 2.5 s", "1 h 3 us 7 ns", "1,234 d"]);
    assert_eq!(found, [59_500_000_000, 60_000_000_000, 62_500_000_000, 3_600_000_003_007, 106_617_600_000_000_000]);
    for wrong in ["5 years", "1 m 5", "-1 s"] {
        assert!(text_of("t.damo", &record(&[wrong]), &Options::default()).contains("--raw"), "{wrong}");
    }
    let rounded = record(&["5"]).replace("8,192 B", "1.234 GiB");
    assert!(text_of("t.damo", &rounded, &Options::default()).contains("--raw"), "an address");
}

#[test]
fn page_faults_by_any_name_are_looked_at_for_instructions() {
    for (event, is_odd) in [("faults:u", true), ("minor-faults", true), ("page-faults", true), ("cache-misses", false)]
    {
        let lines = (0..1200).map(|at| format!("prog 7 {at}.000001: {event}:  7f00{}000\n", at % 9));
        let remarks = pages("t.perf", &lines.collect::<String>()).1;
        assert_eq!(remarks.contains(&"few_faulted_pages 1200".to_owned()), is_odd, "{event}: {remarks:?}");
    }
}
