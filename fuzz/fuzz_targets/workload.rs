#![no_main]

use refault_trace::{Source, WorkloadSpec};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match text.parse::<WorkloadSpec>() {
        Err(error) => assert!(!error.to_string().contains('\n')),
        Ok(spec) => {
            assert_eq!(spec.to_string().parse::<WorkloadSpec>().expect("canonical text parses"), spec);
            // Larger tables would only measure memory.
            if spec.pages.max(spec.anon_pages) < 1 << 16 {
                let mut block = Vec::new();
                if let Ok(mut reader) = Source::workload(spec).open() {
                    assert!(reader.read_block(&mut block).expect("generators do not fail") > 0);
                }
            }
        }
    }
});
