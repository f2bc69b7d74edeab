//! Names of groups, processes and files as they may be shown: whatever they hold, they stay on one line and command no
//! terminal.
//!
//! ```
//! use refault_host::text::printable;
//!
//! assert_eq!(printable(b"web\n\x1b[31m"), "web\\n\\u{1b}[31m");
//! assert_eq!(printable("größe".as_bytes()), "größe");
//! assert_eq!(printable(b"a\xffb"), "a\\xffb");
//! ```

use std::fmt::Write;

/// The longest name that is shown, in characters; of longer ones the end is left out.
pub const MAX_NAME: usize = 4096;

/// Bytes as text on one line: control characters, those that change the direction of text or take no place, and what is
/// not UTF-8 are escaped.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match is_hidden(character) {
                true => text.extend(character.escape_default()),
                false => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Whether a character is not seen, or moves others.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(character, '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_breaks_a_line_or_hides() {
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        for part in all.as_bytes().chunks(1000) {
            let shown = printable(part);
            assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}' || c == '\u{2028}'), "{shown}");
        }
        let long = printable(&[b'a'; MAX_NAME + 1]);
        assert_eq!(long.chars().count(), MAX_NAME + 1);
        assert!(long.ends_with('…'));
    }
}
