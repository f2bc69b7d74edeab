#![no_main]

use refault_sim::monitoring::pattern::Pattern;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(pattern) = Pattern::parse(text) {
        let mut entries = Vec::new();
        pattern.start(1000, 1).play(1000, &mut entries);
        assert!(entries.iter().all(|entry| entry.page() < pattern.pages()));
    }
});
