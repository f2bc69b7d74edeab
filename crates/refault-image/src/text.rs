//! Texts of a limited length without an allocator.

use core::fmt;

/// Bytes of a [`Text`] at most.
const MAX_BYTES: usize = 112;

/// A short text, such as a path: what is longer is cut. Bytes that are no UTF-8 are shown as question marks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; MAX_BYTES],
    len: u8,
}

impl Text {
    /// Nothing.
    pub(crate) const EMPTY: Text = Text { bytes: [0; MAX_BYTES], len: 0 };

    /// The first bytes of a text.
    pub fn new(bytes: &[u8]) -> Text {
        let len = bytes.len().min(MAX_BYTES);
        let mut text = Text { bytes: [0; MAX_BYTES], len: len as u8 };
        text.bytes[..len].copy_from_slice(&bytes[..len]);
        text
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Display for Text {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            to.write_str(chunk.valid())?;
            to.write_str(if chunk.invalid().is_empty() { "" } else { "?" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "\"{self}\"")
    }
}

/// What follows the last slash of a path.
pub(crate) fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_strange_bytes_shown() {
        assert_eq!(Text::new(&[b'a'; 300]).as_bytes().len(), MAX_BYTES);
        assert_eq!(Text::new(b"a\xffb").to_string(), "a?b");
        assert_eq!((base(b"/lib64/ld.so"), base(b"ld.so"), base(b"/")), (&b"ld.so"[..], &b"ld.so"[..], &b""[..]));
    }
}
