//! The accesses that a kernel is asked about: numbers of pages made dense, as a guest has them, and a digest by which
//! the same accesses are known again.

use refault_lab::LabError;
use refault_lab::source::Accesses;
use refault_lab::sweep::layout_of;
use refault_trace::{Entry, Kind};

/// More accesses than this take a guest longer, and more memory, than people wait for.
pub const MAX_ACCESSES: u64 = 1 << 26;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Accesses in memory.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Entries whose pages count from 0 for anonymous memory and for the file.
    pub entries: Vec<u64>,
    /// FNV-1a over the entries as the trace has them.
    pub digest: u64,
    /// Pages of anonymous memory, up to the last one.
    pub anon: u64,
    /// Pages of the file, up to the last one.
    pub file: u64,
    /// Pages that are accessed at all.
    pub distinct: u64,
    /// Whether a file is accessed through a mapping.
    pub mapped: bool,
    /// Writes to file pages, which a guest makes as reads: its file cannot be written.
    pub file_writes: u64,
}

/// The digest of entries, continued from one block to the next.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(FNV_OFFSET)
    }
}

impl Digest {
    /// Takes a block of entries in.
    pub fn update(&mut self, entries: &[Entry]) {
        for byte in entries.iter().flat_map(|entry| entry.0.to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }

    /// Of all that was taken in.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// The digest of a source's accesses, without keeping them.
///
/// # Errors
/// They cannot be read.
pub fn digest_of(source: &dyn Accesses) -> Result<u64, LabError> {
    let (mut digest, mut buffer, mut reader) = (Digest::default(), Vec::new(), source.open()?);
    loop {
        match reader.next_block(&mut buffer)? {
            [] => return Ok(digest.value()),
            block => digest.update(block),
        }
    }
}

impl Sequence {
    /// Reads a source.
    ///
    /// # Errors
    /// It cannot be read, or has too many accesses.
    pub fn read(source: &dyn Accesses) -> Result<Sequence, LabError> {
        let layout = layout_of(source)?;
        if layout.accesses() > MAX_ACCESSES {
            let remedy = format!("ask about a part of it: --limit {MAX_ACCESSES}");
            return Err(LabError::request("too many accesses for a guest", source.name(), remedy));
        }
        let file_base = u64::from(layout.file_base());
        let mut sequence = Sequence {
            entries: Vec::with_capacity(layout.accesses() as usize),
            digest: 0,
            anon: 0,
            file: 0,
            distinct: layout.distinct_pages(),
            mapped: layout.mapped_accesses() > 0,
            file_writes: 0,
        };
        let mut digest = Digest::default();
        let (mut buffer, mut accesses) = (Vec::new(), Vec::new());
        let mut reader = source.open()?;
        loop {
            let block = reader.next_block(&mut buffer)?;
            if block.is_empty() {
                break;
            }
            digest.update(block);
            accesses.clear();
            layout.translate(block, &mut accesses);
            for (entry, access) in block.iter().zip(&accesses) {
                let page = u64::from(access.page());
                let kind = entry.kind().unwrap_or(Kind::Anon);
                let page = if kind == Kind::Anon {
                    sequence.anon = sequence.anon.max(page + 1);
                    page
                } else {
                    sequence.file_writes += u64::from(entry.write());
                    sequence.file = sequence.file.max(page - file_base + 1);
                    page - file_base
                };
                sequence.entries.push(Entry::new(page, kind, entry.write()).0);
            }
        }
        sequence.digest = digest.value();
        Ok(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_trace::Source;

    #[test]
    fn pages_count_from_zero_and_the_digest_is_of_the_trace() {
        let source =
            Source::workload("mixed:apages=64,fpages=32,accesses=1000,writes=0.25".parse().expect("a workload"));
        let sequence = Sequence::read(&source).expect("read");
        assert_eq!((sequence.entries.len(), sequence.file), (1000, 32));
        assert!(sequence.anon <= 64 && sequence.anon > 32 && !sequence.mapped && sequence.file_writes == 0);
        // The hash that the tables of recorded kernels have of the empty sequence, and of another one.
        assert_eq!(Digest::default().value(), FNV_OFFSET);
        let other = Source::workload("mixed:apages=64,fpages=32,accesses=1000,writes=0.5".parse().expect("a workload"));
        assert_ne!(Sequence::read(&other).expect("read").digest, sequence.digest);
        assert_eq!(digest_of(&source).expect("read"), sequence.digest);
    }
}
