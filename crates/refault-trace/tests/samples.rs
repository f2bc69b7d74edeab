//! What becomes of a small sample of each format that a tool writes. The tool made it where it can be installed
//! (`samples/`, with the tool's version in the name). Other samples are as the format's publishers describe it.

use refault_trace::{Format, FoundBy, ObjectsAs, Options, Source, TraceReader};

/// A sample made by a tool.
fn sample(name: &str, options: Options) -> (Source, Vec<refault_trace::Entry>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples/").to_owned() + name;
    let source = Source::file(path, options);
    let entries = source.open().and_then(|mut reader| reader.read_to_end()).expect("readable");
    (source, entries)
}

/// A reader of a text, read to its end.
fn read(name: &str, text: &str, options: &Options) -> (Vec<refault_trace::Entry>, Box<dyn TraceReader>) {
    let mut reader = refault_trace::open_bytes(name, text.as_bytes().to_vec(), options).expect("of a known format");
    (reader.read_to_end().expect("readable"), reader)
}

/// libcachesim 0.3.5's `Util.convert_to_lcs` of ten records over objects 7, 8, 9 and 2^60, of which it leaves out the
/// two of size 0.
#[test]
fn lcs_of_every_version() {
    for version in [1, 2, 3, 4, 8] {
        let name = format!("v{version}.lcs.zst");
        let (source, entries) = sample(&name, Options::default());
        assert_eq!(source.format().expect("readable"), Some((Format::Lcs, FoundBy::Contents)), "{name}");
        let pages: Vec<u64> = entries.iter().map(|entry| entry.page()).collect();
        assert_eq!(pages.len(), 8, "{name}");
        assert_eq!([&pages[..3], &pages[4..7]].concat(), [7, 8, 7, 7, 8, 7], "{name}");
        let (_, sized) = sample(&name, Options { objects: ObjectsAs::SizedIfKnown, ..Options::default() });
        assert_eq!(sized.len(), 12, "{name}: the objects of 9000 bytes have three pages");
        let mut reader = source.open().expect("readable");
        reader.read_block(&mut Vec::new()).expect("readable");
        let time = reader.block_time().expect("timed");
        assert_eq!((time.first_ns, time.last_ns), (0, 9_000_000_000), "{name}");
    }
    let cut = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples/v3.lcs.zst")).expect("there");
    let cut = zstd::decode_all(&cut[..]).expect("packed");
    let error = |bytes: &[u8]| {
        let opened = refault_trace::open_bytes("t.lcs", bytes.to_vec(), &Options::default());
        opened.and_then(|mut reader| reader.read_to_end()).expect_err("refused").to_string()
    };
    assert!(error(&cut[..cut.len() - 5]).contains("truncated: 31 bytes are left of a record of 36"));
    assert!(error(&cut[..4000]).contains("begins and ends with its mark"));
    let mut later = cut.clone();
    later[8] = 9;
    assert!(error(&later).contains("LCS version 9 is not known; 1 to 8 are"));
    // The older header has 1024 bytes.
    let mut older = cut[..1024].to_vec();
    older[1016..1024].copy_from_slice(&cut[..8]);
    older.extend_from_slice(&cut[8192..]);
    let mut reader = refault_trace::open_bytes("t", older, &Options::default()).expect("found by its mark");
    assert_eq!(reader.read_to_end().map(|entries| entries.len()).ok(), Some(8));
}

#[test]
fn fio_logs_of_both_versions() {
    let (source, entries) = sample("fio-3.33.iolog", Options::default());
    assert_eq!(source.format().expect("readable"), Some((Format::Iolog, FoundBy::Name)));
    assert_eq!(entries.len(), 12);
    // Of two files: the second's pages lie in a range of their own.
    assert_eq!((entries[0].page(), entries[1].page()), (1, (1 << 36) + 23));
    assert_eq!(entries.iter().filter(|entry| entry.write()).count(), 5);
    let version_2 = "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda read 4096 8192\n/dev/sda wait 1000 0\n\
                     /dev/sda trim 0 4096\n/dev/sda write 0 4096\n/dev/sda close\n";
    let (entries, reader) = read("log", version_2, &Options::default());
    assert_eq!(entries.iter().map(|entry| entry.page()).collect::<Vec<_>>(), [1, 2, 0]);
    let remarks: Vec<String> = reader.remarks().iter().map(ToString::to_string).collect();
    assert_eq!(remarks.len(), 2, "{remarks:?}");
}

#[test]
fn commands_of_redis_and_keys() {
    let (source, entries) = sample("redis-7.redis", Options::default());
    assert_eq!(source.format().expect("readable"), Some((Format::Redis, FoundBy::Name)));
    // set, get, two of mset, three of mget, and a get of another database.
    assert_eq!(entries.len(), 8);
    assert_eq!(entries.iter().filter(|entry| entry.write()).count(), 3);
    assert_eq!(entries[0].page(), entries[1].page());
    assert_ne!(entries[1].page(), entries[7].page(), "the same key of another database");
    assert_eq!(entries[2].page(), entries[4].page());
    let (entries, _) = read("t.keys", "GET /a b\nGET /c\nGET /a b\n", &Options::default());
    assert!(entries.len() == 3 && entries[0] == entries[2] && entries[0] != entries[1]);
}

#[test]
fn perf_with_symbols_and_without_events() {
    let (_, with) = sample("perf-6.1-addr-sym-ip-dso.perf", Options::default());
    let (_, without) = sample("perf-6.1-time-addr.perf", Options::default());
    assert_eq!(with, without, "the data's addresses, not the instructions'");
    assert_eq!(with.len(), 6);
}

#[test]
fn lackey_with_superblocks() {
    let (_, entries) = sample("valgrind-3.19-superblocks.lackey", Options::default());
    assert!(entries.len() > 20);
}

#[test]
fn object_stores_and_caches() {
    let ibm = "1219008 REST.PUT.OBJECT 8d4fcda3d675bac9 1056\n1221974 REST.HEAD.OBJECT 39d177fb735ac5df 528\n\
               1232437 REST.HEAD.OBJECT 3b8255e0609a700d\n1232488 REST.GET.OBJECT 95d363d3fbdc0b03 1168 0 1167\n\
               1234545 REST.DELETE.OBJECT 95d363d3fbdc0b03 1168\n";
    for name in ["t.ibm", "t"] {
        let (entries, reader) = read(name, ibm, &Options::default());
        assert_eq!(
            entries.iter().map(|entry| entry.write()).collect::<Vec<_>>(),
            [true, false, false, false],
            "{name}"
        );
        assert!(reader.remarks().iter().any(|remark| remark.to_string().contains("1 deletion")), "{name}");
    }
    let cachelib = "key,op,size,op_count,key_size\n1668094,GET_LEASE,82,3,40\n7,SET,500,1,40\n7,DELETE,0,1,40\n";
    let (entries, reader) = read("kvcache.csv", cachelib, &Options::default());
    assert_eq!(entries.iter().map(|entry| entry.page()).collect::<Vec<_>>(), [1_668_094, 1_668_094, 1_668_094, 7]);
    assert_eq!(reader.objects().and_then(|objects| objects.bytes), Some(3 * 122 + 540));
    let error = refault_trace::open_bytes("k.csv", b"key,op_count\n1,99999999999\n".to_vec(), &Options::default())
        .and_then(|mut reader| reader.read_to_end())
        .expect_err("too many");
    assert!(error.to_string().contains("1 pages 99999999999 times over are too many"), "{error}");
}

#[test]
fn accesses_to_memory_of_dinero_and_pin() {
    let (entries, _) = read("t.din", "2 401000\n0 7f001ffc 8\n1 7f002000\n", &Options::default());
    let found: Vec<_> = entries.iter().map(|entry| (entry.page(), entry.write())).collect();
    assert_eq!(found, [(0x401, false), (0x7f001, false), (0x7f002, false), (0x7f002, true)]);
    let (entries, _) = read("t", "0x401136: R 0x7ffe1000\n0x401139: W 0x7ffe2008\n#eof\n", &Options::default());
    let found: Vec<_> = entries.iter().map(|entry| (entry.page(), entry.write())).collect();
    assert_eq!(found, [(0x7ffe1, false), (0x7ffe2, true)]);
}

#[test]
fn packed_by_xz_and_lz4() {
    let numbers: String = (0..5000).map(|n| format!("{}\n", n % 700)).collect();
    let (plain, _) = read("t.text", &numbers, &Options::default());
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    std::io::Write::write_all(&mut lz4, numbers.as_bytes()).expect("packed");
    let lz4 = lz4.finish().expect("packed");
    // Two frames, one behind the other, as `cat` makes them.
    let twice = [lz4.clone(), lz4.clone()].concat();
    let read = |name: &str, bytes: Vec<u8>| {
        refault_trace::open_bytes(name, bytes, &Options::default()).and_then(|mut reader| reader.read_to_end())
    };
    assert_eq!(read("t.text.lz4", lz4.clone()).ok(), Some(plain.clone()));
    assert_eq!(read("t.text.lz4", twice).map(|entries| entries.len()).ok(), Some(10_000));
    assert!(read("t.text.lz4", lz4[..lz4.len() / 2].to_vec()).is_err());
    let xz = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples/numbers.text.xz")).expect("there");
    assert_eq!(read("t.text.xz", xz.clone()).ok(), Some(plain));
    assert!(read("t.text.xz", xz[..xz.len() / 2].to_vec()).is_err());
}
