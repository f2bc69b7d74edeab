#![no_main]

#[path = "../read.rs"]
mod read;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read::to_the_end(None, bytes));
