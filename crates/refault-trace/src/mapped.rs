//! Uncompressed `.u64` files as one slice of entries, without a copy.
//!
//! The file is mapped read-only. As with every mapping, the process gets SIGBUS if the file is truncated
//! while it is read; copy traces that other programs write to.
//! Only little-endian machines can take the bytes as they are; elsewhere the caller falls back to the copying reader.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Place, TraceError};
use crate::input::Input;
use crate::reader::{BLOCK_ENTRIES, Limits, TraceReader};
use crate::{Entry, Kind};

/// A whole `.u64` file in the address space. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MappedTrace {
    path: PathBuf,
    map: Arc<Mmap>,
}

impl MappedTrace {
    /// Maps a file and checks every entry, which brings it into the page cache.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, is compressed, or an entry is undefined.
    pub fn open(path: impl AsRef<Path>) -> Result<MappedTrace, TraceError> {
        let path = path.as_ref();
        let input = Input::open(path, &Limits::default())?;
        let mapped = Self::of_input(&input)?
            .ok_or_else(|| TraceError::unsuitable(path, "cannot be mapped: not an uncompressed regular file"))?;
        mapped.check()?;
        Ok(mapped)
    }

    /// Maps the file of an input if it can be taken as it is; the entries are not checked yet.
    pub(crate) fn of_input(input: &Input) -> Result<Option<MappedTrace>, TraceError> {
        let Some(file) = input.plain_file() else { return Ok(None) };
        if cfg!(target_endian = "big") {
            return Ok(None);
        }
        let path = input.path().to_owned();
        let map = map(file).map_err(|source| TraceError::Open { file: path.clone(), source })?;
        if map.len() % size_of::<Entry>() != 0 {
            let whole = map.len() / size_of::<Entry>() * size_of::<Entry>();
            return Err(crate::formats::truncated_u64(&path, whole as u64, map.len() as u64));
        }
        Ok(Some(MappedTrace { path, map: Arc::new(map) }))
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        entries_of(&self.map)
    }

    /// Fails at the first undefined entry. Cost: one pass at memory speed.
    pub(crate) fn check(&self) -> Result<(), TraceError> {
        for (index, block) in self.entries().chunks(BLOCK_ENTRIES).enumerate() {
            check_entries(block, &self.path, (index * BLOCK_ENTRIES * size_of::<Entry>()) as u64)?;
        }
        Ok(())
    }

    pub(crate) fn into_reader(self, kind: Option<Kind>) -> MappedReader {
        MappedReader { trace: self, kind: kind.filter(|kind| *kind != Kind::Anon), position: 0 }
    }
}

/// Fails at the first undefined entry; `offset` is where the first entry lies.
pub(crate) fn check_entries(entries: &[Entry], path: &Path, offset: u64) -> Result<(), TraceError> {
    let undefined = |entry: &Entry| entry.0 >> Entry::KIND_SHIFT > Kind::Mapped as u64;
    // Without an early exit the loop becomes vector code.
    if !entries.iter().fold(false, |any, entry| any | undefined(entry)) {
        return Ok(());
    }
    let index = entries.iter().position(undefined).expect("invariant: some entry is undefined");
    let entry = entries[index].0;
    let place = Place::Offset(offset + (index * size_of::<Entry>()) as u64);
    let reason = if entry >> (Entry::KIND_SHIFT + 2) != 0 {
        format!("entry {entry:#018x} has a reserved bit (59-63) set; is this a .u64 trace?")
    } else {
        format!("entry {entry:#018x} is of kind 3; kinds are 0 anonymous, 1 file by read(), 2 file by mmap")
    };
    Err(TraceError::malformed(path, place, reason))
}

/// Gives `kind` to the entries that do not say theirs.
#[inline]
pub(crate) fn apply_kind(entry: Entry, kind: Kind) -> Entry {
    if entry.0 >> Entry::KIND_SHIFT == 0 { Entry(entry.0 | (kind as u64) << Entry::KIND_SHIFT) } else { entry }
}

/// Reads a mapped trace block by block.
pub(crate) struct MappedReader {
    trace: MappedTrace,
    kind: Option<Kind>,
    position: usize,
}

impl MappedReader {
    fn advance(&mut self) -> Result<&[Entry], TraceError> {
        let entries = self.trace.entries();
        let start = self.position;
        let end = (start + BLOCK_ENTRIES).min(entries.len());
        let block = &entries[start..end];
        check_entries(block, &self.trace.path, (start * size_of::<Entry>()) as u64)?;
        self.position = end;
        Ok(block)
    }
}

impl TraceReader for MappedReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        let kind = self.kind;
        let block = self.advance()?;
        match kind {
            Some(kind) => out.extend(block.iter().map(|entry| apply_kind(*entry, kind))),
            None => out.extend_from_slice(block),
        }
        Ok(out.len())
    }

    fn next_block<'a>(&'a mut self, buffer: &'a mut Vec<Entry>) -> Result<&'a [Entry], TraceError> {
        if self.kind.is_some() {
            self.read_block(buffer)?;
            return Ok(buffer);
        }
        self.advance()
    }

    fn total(&self) -> Option<u64> {
        Some(self.trace.entries().len() as u64)
    }

    fn progress(&self) -> Option<f64> {
        Some(self.position as f64 / self.trace.entries().len() as f64)
    }
}

#[allow(unsafe_code)]
fn map(file: &std::fs::File) -> std::io::Result<Mmap> {
    // SAFETY: the mapping is private to this crate and only read as plain integers, for which every bit pattern is
    // valid. A change of the file by others changes what is read, never what the code may assume: entries are checked
    // when they are handed out, and users of unchecked values only compute with them. Truncation ends the process with
    // a signal, as the module says.
    let map = unsafe { Mmap::map(file) }?;
    let _ = map.advise(memmap2::Advice::Sequential);
    Ok(map)
}

#[allow(unsafe_code)]
fn entries_of(bytes: &[u8]) -> &[Entry] {
    // SAFETY: `Entry` is a transparent u64, for which all bit patterns are valid; `align_to` only yields aligned whole
    // ones. A mapping starts at a page boundary, so nothing is left before them.
    let (before, entries, _) = unsafe { bytes.align_to::<Entry>() };
    assert!(before.is_empty(), "invariant: a mapping is page-aligned");
    entries
}
