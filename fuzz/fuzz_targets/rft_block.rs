#![no_main]

use refault_trace::rft::block;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (count, mut entries) = (usize::from(*count), Vec::new());
    if block::decode(rest, count, &mut entries).is_ok() {
        assert!(entries.len() == count && entries.iter().all(|entry| entry.kind().is_some()));
        let (mut encoded, mut again) = (Vec::new(), Vec::new());
        block::encode(&entries, &mut encoded);
        block::decode(&encoded, count, &mut again).expect("what is encoded decodes");
        assert_eq!(entries, again);
    }
});
