//! Every importer: what its lines mean, what it refuses and with which words, and that no bytes make it panic.

use proptest::prelude::*;
use refault_trace::{CsvColumns, Entry, Format, Kind, ObjectsAs, Options, TimeSpan, open_bytes};

fn read(name: &str, bytes: &[u8], options: &Options) -> Result<Vec<Entry>, String> {
    let mut reader = open_bytes(name, bytes.to_vec(), options).map_err(|error| error.to_string())?;
    let (mut all, mut block) = (Vec::new(), Vec::new());
    while reader.read_block(&mut block).map_err(|error| error.to_string())? > 0 {
        assert!(block.len() <= refault_trace::BLOCK_ENTRIES);
        all.extend_from_slice(&block);
    }
    Ok(all)
}

fn reads(kind: Kind, pages: &[u64]) -> Vec<Entry> {
    pages.iter().map(|page| Entry::new(*page, kind, false)).collect()
}

fn writes(kind: Kind, pages: &[u64]) -> Vec<Entry> {
    pages.iter().map(|page| Entry::new(*page, kind, true)).collect()
}

fn record(time: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
    [&time.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
}

fn fails(name: &str, bytes: &[u8], expected: &str) {
    fails_with(name, bytes, &Options::default(), expected);
}

fn fails_with(name: &str, bytes: &[u8], options: &Options, expected: &str) {
    let error = read(name, bytes, options).expect_err(expected);
    assert_eq!(error, format!("{name}: {expected}"));
}

#[test]
fn text_is_a_page_a_line() {
    let text = b"# pages\n17\n0x1F\r\n\n  3\n72057594037927935";
    let expected = reads(Kind::Anon, &[17, 31, 3, Entry::MAX_PAGE]);
    assert_eq!(read("t.txt", text, &Options::default()), Ok(expected.clone()));
    let fd = Options { kind: Some(Kind::Fd), ..Options::default() };
    assert_eq!(read("t", text, &fd), Ok(reads(Kind::Fd, &[17, 31, 3, Entry::MAX_PAGE])));
    fails("t.text", b"1\n-2\n", "line 2: page '-2' is negative");
    fails("t.text", b"1\n\nx\n", "line 3: page 'x' is not a whole number");
    fails("t.text", b"0x10000000000000000\n", "line 1: page '0x10000000000000000' is too large");
    fails(
        "t.text",
        b"72057594037927936\n",
        "line 1: page 72057594037927936 is beyond the largest page number, 2^56 - 1",
    );
    fails("t.text", b"# nothing\n\n", "has no accesses");
    fails("t.text", &[b'7'; 70_000], "line 1: line is longer than 65536 bytes; is this a text file?");
}

#[test]
fn lackey_touches_both_pages_of_a_crossing_access() {
    let log = b"==12== Lackey, an example Valgrind tool\n\nI  0400d7d4,3\n L 1ffeffe7e,8\n S 1ffefffe,4\n M 00001ffc,8\n==12==\n";
    let expected =
        [reads(Kind::Anon, &[0x400d, 0x1ffeff]), writes(Kind::Anon, &[0x1ffef, 0x1fff0]), writes(Kind::Anon, &[1, 2])]
            .concat();
    assert_eq!(read("run.log", log, &Options::default()), Ok(expected.clone()), "found by its contents");
    let data_only = Options { skip_instructions: true, ..Options::default() };
    assert_eq!(read("run.lackey", log, &data_only), Ok(expected[1..].to_vec()));
    fails(
        "run.lackey",
        b" L 10,4\nhello\n",
        "line 2: 'hello' is not a lackey line; keep the program's output apart by --log-file",
    );
    fails("run.lackey", b" L ffffffffffffffff,8\n", "line 1: 8 bytes from 18446744073709551615 end beyond 2^64");
}

#[test]
fn accesses_collapse_only_on_request() {
    let log = b" L 1000,4\n L 1004,4\n S 1008,4\nI  2000,4\n L 1000,4\n";
    let all = [reads(Kind::Anon, &[1, 1]), writes(Kind::Anon, &[1]), reads(Kind::Anon, &[2, 1])].concat();
    assert_eq!(read("t.lackey", log, &Options::default()), Ok(all));
    let collapse = Options { collapse: true, ..Options::default() };
    let some = [writes(Kind::Anon, &[1]), reads(Kind::Anon, &[2, 1])].concat();
    assert_eq!(read("t.lackey", log, &collapse), Ok(some));
    // Also across blocks.
    let long = " L 1000,4\n".repeat(200_000);
    assert_eq!(read("t.lackey", long.as_bytes(), &collapse), Ok(reads(Kind::Anon, &[1])));
}

#[test]
fn lis_requests_become_blocks_or_pages() {
    let lis = b"7 3 0 0\n8 1 0 1\n16 17 0 2\n5 0 0 3\n";
    let blocks: Vec<u64> = [7, 8, 9, 8].into_iter().chain(16..33).collect();
    assert_eq!(read("p.lis", lis, &Options::default()), Ok(reads(Kind::Fd, &blocks)));
    assert_eq!(read("unnamed", lis, &Options::default()), Ok(reads(Kind::Fd, &blocks)), "found by its contents");
    let folded = Options { block_bytes: Some(512), ..Options::default() };
    assert_eq!(read("p.lis", lis, &folded), Ok(reads(Kind::Fd, &[0, 1, 1, 2, 3, 4])));
    let long = read("p.lis", b"100 300000 0 0\n", &Options::default()).expect("longer than a block");
    assert_eq!(long, reads(Kind::Fd, &(100..300_100).collect::<Vec<_>>()));
    fails(
        "p.lis",
        b"1 1 0 0\n1 99999999999 0 1\n",
        "line 2: a request of 409599999995904 bytes is beyond the limit of 4294967296",
    );
    fails("p.lis", b"1 -1 0 0\n", "line 1: number of blocks '-1' is negative");
    fails("p.lis", b"12\n", "line 1: number of blocks is missing");
    fails(
        "p.lis",
        b"1 1 0 0 9\n",
        "line 1: more than four numbers; a line is: first block, count, ignored, request number",
    );
    let none = Options { block_bytes: Some(0), ..Options::default() };
    fails_with("p.lis", lis, &none, "the unit of block numbers must be from 1 to 4096 bytes, not 0");
}

#[test]
fn msr_requests_become_pages_and_disks_stay_apart() {
    let msr = b"128166372003061629,hm,1,Read,4095,2,1331\n128166372003061630,hm,1,Write,8192,4096,3\n128166372003061639,hm,0,read,0,512,3\n";
    let expected = [reads(Kind::Fd, &[0, 1]), writes(Kind::Fd, &[2]), reads(Kind::Fd, &[1 << 44])].concat();
    for name in ["hm_1.csv", "hm_1.msr", "hm_1"] {
        assert_eq!(read(name, msr, &Options::default()).as_ref(), Ok(&expected), "{name}");
    }
    let mut reader = open_bytes("hm.msr", msr.to_vec(), &Options::default()).expect("whole");
    reader.read_block(&mut Vec::new()).expect("whole");
    let time = TimeSpan { first_ns: 12_816_637_200_306_162_900, last_ns: 12_816_637_200_306_163_900 };
    assert_eq!(reader.block_time(), Some(time));
    fails("a.msr", b"1,hm,1,Read,-4096,512,1\n", "line 1: offset '-4096' is negative");
    fails("a.msr", b"1,hm,1,Erase,0,512,1\n", "line 1: type 'Erase' is neither Read nor Write");
    fails("a.msr", b"1,hm,1,Read\n", "line 1: '1,hm,1,Read' has not the 7 fields of an MSR trace");
}

#[test]
fn csv_columns_are_found_by_name() {
    let options = Options::default();
    let pages = b"time_us,page,write\n5,7,0\n9,8,1\n";
    let expected = [reads(Kind::Anon, &[7]), writes(Kind::Anon, &[8])].concat();
    assert_eq!(read("t.csv", pages, &options), Ok(expected));
    let mut reader = open_bytes("t.csv", pages.to_vec(), &options).expect("whole");
    reader.read_block(&mut Vec::new()).expect("whole");
    assert_eq!(reader.block_time(), Some(TimeSpan { first_ns: 5000, last_ns: 9000 }));

    let offsets = b"Op,Offset,Size\r\nR,4095,2\r\nW,0x2000,4096\r\n\"R\",\"0\",0\r\n";
    let expected = [reads(Kind::Fd, &[0, 1]), writes(Kind::Fd, &[2])].concat();
    assert_eq!(read("t.csv", offsets, &options), Ok(expected));

    let kinds = b"address,kind\n4096,mapped\n4095,fd\n0,anon\n";
    let expected = [reads(Kind::Mapped, &[1]), reads(Kind::Fd, &[0]), reads(Kind::Anon, &[0])].concat();
    assert_eq!(read("t.csv", kinds, &options), Ok(expected));
    assert_eq!(read("t", b"page\n5\n", &options), Ok(reads(Kind::Anon, &[5])), "found by its contents");
    assert_eq!(read("t.csv", b"5\n6\n", &options), Ok(reads(Kind::Anon, &[5, 6])), "a lone column needs no name");
}

#[test]
fn csv_columns_are_found_by_number_or_other_names() {
    let columns = CsvColumns { offset: Some("2".into()), size: Some("3".into()), ..CsvColumns::default() };
    let options = Options { columns, ..Options::default() };
    assert_eq!(read("t.csv", b"a,4096,1\nb,8191,2\n", &options), Ok(reads(Kind::Fd, &[1, 1, 2])));
    assert_eq!(
        read("t.csv", b"who,where,many\na,4096,1\n", &options),
        Ok(reads(Kind::Fd, &[1])),
        "a header is skipped"
    );
    fails_with("t.csv", b"1\n", &options, "line 1: there is no column 2: the line has 1: 1 '1'");
    let columns = CsvColumns { page: Some("frame".into()), ..CsvColumns::default() };
    let options = Options { columns, ..Options::default() };
    assert_eq!(read("t.csv", b"page,frame\n1,2\n", &options), Ok(reads(Kind::Anon, &[2])));
    fails_with("t.csv", b"page\n1\n", &options, "line 1: no column is called 'frame'; there are: page");
}

#[test]
fn csv_errors_name_line_and_field() {
    fails(
        "t.csv",
        b"a,b\n1,2\n",
        "line 1: no column says where an access lies; there are: a, b; say which, such as --columns page=a",
    );
    fails("t.csv", b"page,op\n1,r\n-3,r\n", "line 3: page '-3' is negative");
    fails(
        "t.csv",
        b"page,op\n1,x\n",
        "line 2: operation 'x' is neither a read (r, read, 0) nor a write (w, write, 1): --columns operation= takes all for \
         reads",
    );
    fails("t.csv", b"page,op\n1\n", "line 2: operation is missing: the line has 1 fields, not 2");
    fails("t.csv", b"page,kind\n1,file\n", "line 2: kind 'file' is not anon, fd or mapped");
    fails("t.csv", b"page,time\n1,-4.5\n", "line 2: time '-4.5' is negative or not finite");
    fails("t.csv", b"page\n\"1\n", "line 2: a quote is not closed on its line");
    fails("t.csv", b"page\n", "has no accesses");
    fails(
        "t.csv",
        b"offset,size\n0,99999999999\n",
        "line 2: a request of 99999999999 bytes is beyond the limit of 4294967296",
    );
}

#[test]
fn oracle_general_objects_are_pages_or_blocks() {
    let trace = [record(1, 9, 100, 3), record(3, 16, 9000, -1)].concat();
    let name = "w.oracleGeneral.bin";
    assert_eq!(read(name, &trace, &Options::default()), Ok(reads(Kind::Fd, &[9, 16])));
    let blocks = Options { block_bytes: Some(512), ..Options::default() };
    assert_eq!(read(name, &trace, &blocks), Ok(reads(Kind::Fd, &[1, 2, 3, 4])));
    let mut reader = open_bytes(name, trace.clone(), &Options::default()).expect("whole");
    reader.read_block(&mut Vec::new()).expect("whole");
    assert_eq!(reader.block_time(), Some(TimeSpan { first_ns: 1_000_000_000, last_ns: 3_000_000_000 }));
    let hashed = read(name, &record(0, u64::MAX - 5, 1, -1), &Options::default()).expect("folded");
    assert!(hashed[0].page() != (u64::MAX - 5) & Entry::MAX_PAGE && hashed[0].kind() == Some(Kind::Fd));
    fails(name, &trace[..30], "offset 24: truncated: 6 bytes are left of a record of 24");
    fails(name, &record(0, 1, 1, -70), "offset 0: next access -70 is negative; is this an oracleGeneral trace?");
}

#[test]
fn unknown_formats_are_named_with_what_there_is() {
    let names = Format::ALL.map(Format::name).join(", ");
    let expected = format!("cannot tell its format from name or contents; name one by --trace-format: {names}");
    fails("t.dat", b"what is this?\n", &expected);
    fails("t.bin", &[0, 1, 2, 3], &expected);
}

#[test]
fn packed_text_is_text() {
    let packed = zstd::encode_all(&b"1\n2\n"[..], 1).expect("packed");
    assert_eq!(read("t.txt.zst", &packed, &Options::default()), Ok(reads(Kind::Anon, &[1, 2])));
    assert_eq!(
        read("p.lis.zst", &zstd::encode_all(&b"3 1 0 0\n"[..], 1).expect("packed"), &Options::default()),
        Ok(reads(Kind::Fd, &[3]))
    );
}

fn options() -> impl Strategy<Value = Options> {
    let format = prop::option::of(prop::sample::select(Format::ALL.to_vec()));
    (format, prop::option::of(1..5000u32), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(format, block_bytes, skip_instructions, collapse, sized)| {
            let objects = if sized { ObjectsAs::Sized } else { ObjectsAs::OnePageEach };
            let mut options =
                Options { format, block_bytes, skip_instructions, collapse, objects, ..Options::default() };
            options.limits.request_bytes = 1 << 24;
            options
        },
    )
}

/// Bytes that look enough like the formats to get past their first checks.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("page,op,size\n".to_owned()),
        Just("offset,size,time\n".to_owned()),
        Just(" L ".to_owned()),
        Just("I  ".to_owned()),
        Just(",Read,".to_owned()),
        Just(",get,0\n".to_owned()),
        Just("key,obj_id;lba\t".to_owned()),
        Just("  8,0    3  1  0.000000000   697  Q   W ".to_owned()),
        Just(" + 8 [a]\n".to_owned()),
        Just("ls 1 [000] 1.5:  1 page-faults: ".to_owned()),
        Just("# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL\n".to_owned()),
        Just("kdamond.0 1 [000] 8.3: damon:damon_aggregated: target_id=0 nr_regions=1 4096-8192: ".to_owned()),
        Just("[{\"target_id\": 0, \"snapshots\": [{\"regions\": [{\"start\": 1, \"end\": ".to_owned()),
        Just("\n".to_owned()),
        Just(",".to_owned()),
        Just("\"".to_owned()),
        Just("0x".to_owned()),
        Just("-".to_owned()),
        any::<u64>().prop_map(|number| number.to_string()),
        (0..5000u64).prop_map(|number| format!("{number} ")),
        (0..5000u64).prop_map(|number| format!("{number:x},4\n")),
    ];
    prop::collection::vec(word, 1..40).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #[test]
    fn no_bytes_make_an_importer_panic(bytes in prop::collection::vec(any::<u8>(), 1..300), options in options()) {
        if let Err(error) = read("t", &bytes, &options) {
            prop_assert!(error.starts_with("t: ") && !error.contains('\n'), "{:?}", error);
        }
    }

    #[test]
    fn no_text_makes_an_importer_panic(bytes in plausible(), options in options()) {
        if let Err(error) = read("t", &bytes, &options) {
            prop_assert!(error.starts_with("t: ") && !error.contains('\n'), "{:?}", error);
        }
    }

    #[test]
    fn what_is_printed_is_read(pages in prop::collection::vec((0..=Entry::MAX_PAGE, any::<bool>()), 1..200)) {
        let expected: Vec<_> = pages.iter().map(|(page, write)| Entry::new(*page, Kind::Anon, *write)).collect();
        let csv: String = pages.iter().map(|(page, write)| format!("{page},{}\n", u8::from(*write))).collect();
        prop_assert_eq!(read("t.csv", format!("page,write\n{csv}").as_bytes(), &Options::default()), Ok(expected.clone()));
        let text: String = pages.iter().map(|(page, _)| format!("{page:#x}\n")).collect();
        let unwritten: Vec<_> = expected.iter().map(|entry| Entry::new(entry.page(), Kind::Anon, false)).collect();
        prop_assert_eq!(read("t.text", text.as_bytes(), &Options::default()), Ok(unwritten));
    }
}
