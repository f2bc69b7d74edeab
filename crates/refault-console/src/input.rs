//! Reading the texts that people write: configurations, scenarios, patterns.
//!
//! ```
//! use refault_console::read_text;
//!
//! assert!(read_text("/nowhere/machine.toml".as_ref()).is_err());
//! ```

use std::io;
use std::path::Path;

/// A file's text.
///
/// # Errors
/// It cannot be read, or is no UTF-8: says in which line.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(std::fs::read(path)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is no UTF-8 text"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_named_by_its_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("m.toml");
        std::fs::write(&path, b"[machine]\nname = \"\xff\"\n").expect("writes");
        assert_eq!(read_text(&path).expect_err("no text").to_string(), "line 2 is no UTF-8 text");
        std::fs::write(&path, "name = \"ä\"\n").expect("writes");
        assert_eq!(read_text(&path).expect("text"), "name = \"ä\"\n");
    }
}
