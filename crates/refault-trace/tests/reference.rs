//! The reference names every format as the code has it.

use refault_trace::Format;

#[test]
fn the_table_of_formats_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/traces.md");
    // Not there in a package of this crate alone.
    let Ok(page) = std::fs::read_to_string(path) else { return };
    let start = page.find("| format |").expect("the page has the table");
    let end = page.find("<!-- end -->").expect("the table ends");
    assert_eq!(&page[start..end], Format::table(), "replace the table by the right-hand side");
}
