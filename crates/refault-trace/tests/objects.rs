//! Objects, blocks and pages told apart: which of them a trace has, how many pages each becomes, what each weighs, and
//! what is said of it.

use refault_trace::statistics::{Resolution, TraceStatistics};
use refault_trace::{CsvColumns, Entry, Format, FoundBy, Kind, ObjectsAs, Options, Source, open_bytes};

/// Pages and bytes of a trace, and what the reader says of it.
fn read(name: &str, bytes: &[u8], options: &Options) -> (Vec<u64>, Option<Vec<u64>>, String) {
    let mut reader = open_bytes(name, bytes.to_vec(), options).expect("readable");
    let (mut pages, mut sizes, mut block) = (Vec::new(), Some(Vec::new()), Vec::new());
    while reader.read_block(&mut block).expect("readable") > 0 {
        pages.extend(block.iter().map(|entry| entry.page()));
        match (reader.block_bytes(), &mut sizes) {
            (Some(bytes), Some(sizes)) => sizes.extend_from_slice(bytes),
            _ => sizes = None,
        }
    }
    let details: Vec<String> = reader.details().iter().map(|(what, how)| format!("{what}: {how}")).collect();
    (pages, sizes, details.join("; "))
}

fn columns(set: impl FnOnce(&mut CsvColumns)) -> Options {
    let mut columns = CsvColumns::default();
    set(&mut columns);
    Options { columns, ..Options::default() }
}

const REQUESTS: &[u8] = b"timestamp,object_id,size,op\n1,7,9000,get\n2,8,100,get\n3,7,9000,get\n4,8,1,delete\n";

#[test]
fn an_object_is_a_page_whatever_its_size() {
    let (pages, sizes, details) = read("r.csv", REQUESTS, &Options::default());
    assert_eq!((pages, sizes), (vec![7, 8, 7], Some(vec![9000, 100, 9000])));
    assert!(details.contains("object is 'object_id' (column 2)") && details.contains("one page each"), "{details}");
    // Named as a page, it is one all the same, and the size beside it only weighs.
    let as_page = columns(|columns| columns.page = Some("object_id".into()));
    assert_eq!(read("r.csv", REQUESTS, &as_page).0, [7, 8, 7]);
    let unsized_objects = columns(|columns| columns.size = Some(String::new()));
    assert_eq!(read("r.csv", REQUESTS, &unsized_objects).1, None, "an empty name switches a column off");
    let by_number = Options {
        format: Some(Format::Csv),
        ..columns(|columns| {
            columns.object = Some("2".into());
            columns.size = Some("3".into());
        })
    };
    let headerless = b"1,a,10,x\n2,b,20,x\n3,a,10,x\n";
    let (pages, sizes, _) = read("r", headerless, &by_number);
    // A first record that holds the very number that names a column is a record.
    let (tricky, ..) = read("r", b"1,2,3,x\n2,2,20,x\n", &by_number);
    assert_eq!(tricky.len(), 2);
    assert_eq!((pages[0] == pages[2], pages[0] == pages[1], sizes), (true, false, Some(vec![10, 20, 10])));
}

#[test]
fn objects_have_sizes_only_on_request() {
    let options = Options { objects: ObjectsAs::Sized, ..Options::default() };
    let (pages, sizes, details) = read("r.csv", REQUESTS, &options);
    assert_eq!(pages, [0, 1, 2, 3, 0, 1, 2], "three pages of their own for 9000 bytes, one for 100");
    assert_eq!(sizes, Some(vec![4096, 4096, 808, 100, 4096, 4096, 808]));
    assert!(details.contains("as many pages as their sizes need"), "{details}");
    let grown = b"key,size\na,1\nb,1\na,5000\na,1\n";
    assert_eq!(read("r.csv", grown, &options).0, [0, 1, 2, 3, 2], "a grown object is written anew");
    let unsized_error = open_bytes("r.csv", b"key\na\n".to_vec(), &options)
        .and_then(|mut reader| reader.read_block(&mut Vec::new()))
        .expect_err("no size");
    assert!(unsized_error.to_string().contains("this one has none"), "{unsized_error}");
}

#[test]
fn keys_are_hashed_and_numbers_kept() {
    let (pages, ..) = read("k.csv", b"key\nuser:17\n17\n017\nuser:17\n99999999999999999999\n", &Options::default());
    assert_eq!(pages[1], 17);
    assert_eq!(pages[0], pages[3]);
    let mut distinct = pages.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "{pages:?}");
    assert!(pages.iter().all(|page| *page <= Entry::MAX_PAGE));
}

#[test]
fn offsets_are_split_and_blocks_counted_in_their_unit() {
    let options = Options::default();
    let (pages, sizes, _) = read("o.csv", b"offset,size\n4000,5000\n", &options);
    assert_eq!((pages, sizes), (vec![0, 1, 2], Some(vec![96, 4096, 808])));
    let (pages, _, details) = read("l.csv", b"lba,sectors\n7,2\n", &options);
    assert_eq!(pages, [0, 1]);
    assert!(details.contains("of 512 bytes"), "{details}");
    assert_eq!(read("b.csv", b"block,count\n7,2\n", &options).0, [7, 8]);
    assert_eq!(read("b.csv", b"block\n7\n", &options).0, [7]);
    let folded = Options { block_bytes: Some(1024), ..Options::default() };
    assert_eq!(read("b.csv", b"block,size\n7,2048\n", &folded).0, [1, 2]);
    assert_eq!(read("l.lis", b"7 2 0 0\n", &options).1, Some(vec![4096, 4096]));
}

#[test]
fn separators_marks_and_usual_headers_are_found() {
    let options = Options::default();
    for (text, separator) in [
        ("\u{feff}page,op\n1,r\n2,w\n", "comma"),
        ("page;op\n1;r\n2;w\n", "semicolon"),
        ("op\tpage\nr\t1\nw\t2\n", "tab"),
        ("op|page\nr|1\nw|2\n", "bar"),
    ] {
        let (pages, _, details) = read("t.csv", text.as_bytes(), &options);
        assert_eq!(pages, [1, 2], "{text}");
        assert!(details.contains(separator), "{details}");
        assert_eq!(read("unnamed", text.as_bytes(), &options).0, [1, 2], "{text} by its contents");
    }
    for name in ["lba", "lbn", "block", "sector", "key", "obj_id", "object_id", "object", "id", "addr", "pfn", "LBN"] {
        let text = format!("when,{name}\n1,8\n");
        assert_eq!(read("t.csv", text.as_bytes(), &options).0.len(), 1, "{name}");
    }
}

#[test]
fn errors_list_the_columns_and_suggest_one() {
    let error = |text: &str, options: &Options| {
        let opened = open_bytes("t.csv", text.as_bytes().to_vec(), options);
        opened.and_then(|mut reader| reader.read_block(&mut Vec::new())).expect_err("no position").to_string()
    };
    assert_eq!(
        error("timestamp,my_object,bytes\n1,2,3\n", &Options::default()),
        "t.csv: line 1: no column says where an access lies; there are: timestamp, my_object, bytes; say which, such as \
         --columns object=my_object"
    );
    assert_eq!(
        error("1,2,3\n", &Options::default()),
        "t.csv: line 1: no column says where an access lies; the first line does not name columns: 1 '1', \
         2 '2', 3 '3'; say by number, such as --columns object=2"
    );
    let named = columns(|columns| columns.size = Some("sise".into()));
    assert_eq!(error("page,size\n1,2\n", &named), "t.csv: line 1: no column is called 'sise'; there are: page, size");
}

#[test]
fn statistics_say_what_was_understood() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("r.csv");
    std::fs::write(&path, REQUESTS).expect("ours");
    let source = Source::file(&path, Options::default());
    assert_eq!(source.format().expect("readable"), Some((Format::Csv, FoundBy::Name)));
    let statistics = TraceStatistics::of(&source, Resolution::default(), |_| ()).expect("readable");
    assert_eq!((statistics.bytes, statistics.accesses, statistics.distinct_pages), (Some(18_100), 3, 2));
    let time = statistics.time.expect("it has times");
    assert_eq!((time.first_ns, time.last_ns), (1_000_000_000, 3_000_000_000));
    let kind = statistics.details.iter().find(|(what, _)| *what == "kind").expect("said");
    assert_eq!(kind.1, format!("{} (assumed; --kind says otherwise)", Kind::Fd.name()));
}
