//! Initial file systems: archives of cpio's `newc` format, which the kernel unpacks into memory at its start.
//!
//! ```
//! let mut archive = refault_ask::emulator::initial::Archive::default();
//! archive.file("etc/motd", b"hello", 0o644);
//! let bytes = archive.finish();
//! assert!(bytes.starts_with(b"070701") && bytes.len() % 4 == 0);
//! ```

use std::collections::BTreeSet;

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;
const CHARACTERS: u32 = 0o020_600;
/// Headers and contents begin at multiples of this.
const ALIGNMENT: usize = 4;

/// An archive that is being written. Directories come by themselves before what lies in them.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a directory and those above it; a path without a leading slash.
    pub fn directory(&mut self, path: &str) {
        if path.is_empty() || !self.directories.insert(path.to_owned()) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entry(path, DIRECTORY, b"");
    }

    /// Adds a file with these permissions; a path without a leading slash.
    pub fn file(&mut self, path: &str, contents: &[u8], permissions: u32) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entry(path, REGULAR | permissions, contents);
    }

    /// Adds a device of characters by its numbers.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.record(path, CHARACTERS, [major, minor], b"");
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.record(path, mode, [0, 0], contents);
    }

    fn record(&mut self, path: &str, mode: u32, [major, minor]: [u32; 2], contents: &[u8]) {
        self.entries += 1;
        let links = 1;
        // Inode, mode, user, group, links, time, size, device of it and of what it stands for, length of name, checksum.
        let fields =
            [self.entries, mode, 0, 0, links, 0, contents.len() as u32, 0, 0, major, minor, path.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(MAGIC.as_bytes());
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(contents);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    /// The archive, with its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, b"");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths, modes and contents as a reader finds them.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            let field = |at: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * at..14 + 8 * at]).expect("digits");
                u32::from_str_radix(text, 16).expect("a number")
            };
            let (mode, size, name) = (field(1), field(6) as usize, field(11) as usize);
            let path = String::from_utf8(bytes[110..110 + name - 1].to_vec()).expect("a path");
            let start = (110 + name).next_multiple_of(ALIGNMENT);
            if path == TRAILER {
                return found;
            }
            found.push((path, mode, bytes[start..start + size].to_vec()));
            bytes = &bytes[(start + size).next_multiple_of(ALIGNMENT)..];
        }
    }

    #[test]
    fn directories_come_first_and_once() {
        let mut archive = Archive::default();
        archive.file("a/b/one", b"1", 0o755);
        archive.file("a/b/two", b"22", 0o644);
        archive.directory("proc");
        archive.device("dev/console", 5, 1);
        let found = read(&archive.finish());
        let paths: Vec<&str> = found.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/one", "a/b/two", "proc", "dev", "dev/console"]);
        assert_eq!((found[0].1, found[2].1), (DIRECTORY, REGULAR | 0o755));
        assert_eq!((found[2].2.as_slice(), found[3].2.as_slice()), (&b"1"[..], &b"22"[..]));
    }
}
