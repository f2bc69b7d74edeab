//! The parts of an ELF file that say who loads it and with what.
//!
//! Source: the System V ABI and its x86-64 supplement; `Elf64_Verdef` of the GNU extensions. A file that contradicts
//! itself is one without what it contradicts.

use crate::file::File;

/// Bytes of an ELF file's first header.
pub(crate) const HEADER: usize = 64;
/// Bytes of a program header.
const SEGMENT: usize = 56;
/// The kernel takes no more program headers than fit into this many bytes.
const MAX_SEGMENTS: u64 = 65_536 / SEGMENT as u64;
/// Loaded parts of a file that are remembered: linkers make four to six.
const MAX_LOADED: usize = 16;
/// Entries of a dynamic section that are read.
const MAX_ENTRIES: u64 = 4096;
/// Versions that a library may define.
const MAX_VERSIONS: usize = 256;

const CLASS: usize = 4;
const CLASS_64: u8 = 2;
const CLASS_32: u8 = 1;
const DATA: usize = 5;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE: usize = 18;
const MACHINE_X86: u16 = 3;
const MACHINE_X86_64: u16 = 62;
const SEGMENT_TABLE: usize = 32;
const SEGMENT_BYTES: usize = 54;
const SEGMENT_COUNT: usize = 56;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;
const TYPE: usize = 16;
const TYPE_SHARED: u16 = 3;

/// What kind of program the first bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One of this machine, of 64 bits.
    Native,
    Bits32,
    /// For another processor.
    Other(u16),
    /// No ELF file.
    None,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The kind of program that a file with these first bytes is.
pub(crate) fn kind(head: &[u8]) -> Kind {
    if head.len() < HEADER || !head.starts_with(b"\x7fELF") {
        return Kind::None;
    }
    let machine = match head[DATA] {
        LITTLE_ENDIAN => u16_at(head, MACHINE),
        _ => u16_at(head, MACHINE).swap_bytes(),
    };
    match (machine, head[CLASS]) {
        (MACHINE_X86_64, CLASS_64) => Kind::Native,
        (MACHINE_X86_64 | MACHINE_X86, CLASS_32) => Kind::Bits32,
        _ => Kind::Other(machine),
    }
}

/// Where parts of a file are loaded.
#[derive(Default)]
struct Loaded {
    parts: [(u64, u64, u64); MAX_LOADED],
    count: usize,
}

impl Loaded {
    /// Where in the file the byte at an address is.
    fn place(&self, address: u64) -> Option<u64> {
        let holds = |(start, bytes, _): &&(u64, u64, u64)| address >= *start && address - start < *bytes;
        let (start, _, offset) = self.parts[..self.count].iter().find(holds)?;
        offset.checked_add(address - start)
    }
}

/// An ELF file of this machine.
pub(crate) struct Elf<'a> {
    file: &'a File,
    loaded: Loaded,
    /// Place and bytes.
    interpreter: Option<(u64, u64)>,
    dynamic: Option<(u64, u64)>,
    is_shared: bool,
}

/// The dynamic section, as far as it is looked at.
#[derive(Default)]
struct Dynamic {
    strings: u64,
    name: Option<u64>,
    versions: Option<u64>,
}

impl<'a> Elf<'a> {
    /// Reads the program headers of a file whose first bytes are `head`.
    pub(crate) fn read(file: &'a File, head: &[u8; HEADER]) -> Result<Elf<'a>, i32> {
        let is_shared = u16_at(head, TYPE) == TYPE_SHARED;
        let mut elf = Elf { file, loaded: Loaded::default(), interpreter: None, dynamic: None, is_shared };
        let table = u64_at(head, SEGMENT_TABLE);
        let count = u64::from(u16_at(head, SEGMENT_COUNT)).min(MAX_SEGMENTS);
        if usize::from(u16_at(head, SEGMENT_BYTES)) != SEGMENT {
            return Ok(elf);
        }
        for index in 0..count {
            let mut segment = [0; SEGMENT];
            let Some(at) = table.checked_add(index * SEGMENT as u64) else { break };
            if file.read_at(&mut segment, at)? < SEGMENT {
                break;
            }
            let (offset, address, bytes) = (u64_at(&segment, 8), u64_at(&segment, 16), u64_at(&segment, 32));
            match u32_at(&segment, 0) {
                PT_LOAD if elf.loaded.count < MAX_LOADED => {
                    elf.loaded.parts[elf.loaded.count] = (address, bytes, offset);
                    elf.loaded.count += 1;
                }
                PT_DYNAMIC => elf.dynamic = Some((offset, bytes)),
                PT_INTERP => elf.interpreter = Some((offset, bytes)),
                _ => {}
            }
        }
        Ok(elf)
    }

    /// The path of its loader, with the zero behind it; `None` if it asks for none.
    pub(crate) fn interpreter<'b>(&self, into: &'b mut [u8]) -> Result<Option<&'b [u8]>, i32> {
        let Some((at, bytes)) = self.interpreter else { return Ok(None) };
        let room = into.len();
        let bytes = usize::try_from(bytes).unwrap_or(room).min(room);
        let read = self.file.read_at(&mut into[..bytes], at)?;
        Ok(text(&into[..read]))
    }

    /// Walks through the entries of the dynamic section until `look` has seen enough.
    fn entries(&self, mut look: impl FnMut(u64, u64) -> bool) {
        const ENTRY: usize = 16;
        let Some((at, bytes)) = self.dynamic else { return };
        let mut chunk = [0; 64 * ENTRY];
        let entries = (bytes / ENTRY as u64).min(MAX_ENTRIES);
        let mut next = 0;
        while next < entries {
            let Some(from) = at.checked_add(next * ENTRY as u64) else { return };
            let Ok(read) = self.file.read_at(&mut chunk, from) else { return };
            let here = (read / ENTRY).min((entries - next) as usize);
            for entry in chunk[..here * ENTRY].chunks_exact(ENTRY) {
                let tag = u64_at(entry, 0);
                if tag == DT_NULL || look(tag, u64_at(entry, 8)) {
                    return;
                }
            }
            if here == 0 {
                return;
            }
            next += here as u64;
        }
    }

    fn dynamic(&self) -> Dynamic {
        let mut found = Dynamic::default();
        self.entries(|tag, value| {
            match tag {
                DT_STRTAB => found.strings = value,
                DT_SONAME => found.name = Some(value),
                DT_VERDEF => found.versions = Some(value),
                _ => {}
            }
            false
        });
        found
    }

    /// A text of the dynamic section.
    fn string<'b>(&self, strings: u64, at: u64, into: &'b mut [u8]) -> Option<&'b [u8]> {
        let place = self.loaded.place(strings.checked_add(at)?)?;
        let read = self.file.read_at(into, place).ok()?;
        Some(text(&into[..read])?.strip_suffix(b"\0").unwrap_or_default())
    }

    /// Whether it is a library, as loaders are, and no program that may lie anywhere.
    pub(crate) fn is_library(&self) -> bool {
        let mut is_program = !self.is_shared || self.dynamic.is_none();
        self.entries(|tag, value| {
            is_program |= tag == DT_FLAGS_1 && value & DF_1_PIE != 0;
            is_program
        });
        !is_program
    }

    /// The name by which others ask for it (`DT_SONAME`).
    pub(crate) fn name<'b>(&self, into: &'b mut [u8]) -> Option<&'b [u8]> {
        let dynamic = self.dynamic();
        self.string(dynamic.strings, dynamic.name?, into)
    }

    /// Shows `look` the names of the libraries that it asks for, until that has seen enough.
    pub(crate) fn needs(&self, mut look: impl FnMut(&[u8]) -> bool) {
        let strings = self.dynamic().strings;
        self.entries(|tag, value| {
            let mut name = [0; 256];
            tag == DT_NEEDED && self.string(strings, value, &mut name).is_some_and(&mut look)
        });
    }

    /// Whether it defines this version of its symbols; `None` if it defines none at all.
    pub(crate) fn defines(&self, version: &[u8]) -> Option<bool> {
        const DEFINITION: usize = 20;
        let dynamic = self.dynamic();
        let mut at = self.loaded.place(dynamic.versions?)?;
        for _ in 0..MAX_VERSIONS {
            let mut definition = [0; DEFINITION];
            if self.file.read_at(&mut definition, at).ok()? < DEFINITION {
                break;
            }
            let (first, next) = (u32_at(&definition, 12), u32_at(&definition, 16));
            let mut name = [0; 4];
            self.file.read_at(&mut name, at.checked_add(u64::from(first))?).ok()?;
            let mut found = [0; 64];
            if self.string(dynamic.strings, u64::from(u32_at(&name, 0)), &mut found) == Some(version) {
                return Some(true);
            }
            if next == 0 {
                break;
            }
            at = at.checked_add(u64::from(next))?;
        }
        Some(false)
    }
}

/// The text up to its zero, that included.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    bytes.iter().position(|byte| *byte == 0).map(|end| &bytes[..=end])
}
