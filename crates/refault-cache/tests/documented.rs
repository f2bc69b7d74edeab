//! The example of `docs/guide/cache.md` is the one in `shown`, and runs.

mod example {
    include!("shown/read.rs");

    pub fn run() -> Result<(), Box<dyn std::error::Error>> {
        main()
    }
}

#[test]
fn the_example_of_the_page_runs() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/cache.md")).expect("the page");
    // A user has the crate `refault`, which shows this one as its module.
    let shown = include_str!("shown/read.rs").replace("use refault_cache::", "use refault::cache::");
    assert!(page.contains(&format!("```rust\n{shown}```")), "it shows another one");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(directory.path().join("data"), &bytes).expect("writes");
    std::env::set_current_dir(directory.path()).expect("the only test of this program");
    match example::run() {
        Err(error) if error.to_string().contains("O_DIRECT") => refault_testing::skip(error.to_string()),
        outcome => {
            outcome.expect("runs");
            assert_eq!(std::fs::read("data").expect("reads")[..100], bytes[123_456..123_556]);
        }
    }
}
