#![no_main]

use refault_trace::Format;

#[path = "../read.rs"]
mod read;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read::to_the_end(Some(Format::Spc), bytes));
