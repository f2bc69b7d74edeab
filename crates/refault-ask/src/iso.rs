//! The head of a disk with one file: ISO 9660, which a kernel's `isofs` reads in whole pages without a copy of its own.
//!
//! Only the head is written; the file's contents are whatever follows it, such as the hole of a sparse image. Its page
//! `n` lies at [`DATA`] + 4096 `n`.
//!
//! Source: ECMA-119, sections 6 to 9.

/// Bytes of a sector.
const SECTOR: usize = 2048;
/// Sectors of the first descriptor, of the last one, of the two tables of paths, and of the directory.
const PRIMARY: usize = 16;
const TERMINATOR: usize = 17;
const TABLE: usize = 18;
const BIG_TABLE: usize = 19;
const DIRECTORY: usize = 20;
/// Where the file begins, in bytes: a multiple of a page.
pub const DATA: u64 = 64 * 1024;
/// The file's name as it is mounted.
pub const NAME: &str = "data";
const RECORDED_NAME: &[u8] = b"DATA.;1";
/// The most bytes that a file may have: a length takes 32 bits.
pub const MAX_BYTES: u64 = u32::MAX as u64 / 4096 * 4096;
/// Marks of a directory, in its record's flags.
const IS_DIRECTORY: u8 = 2;
const VERSION: u8 = 1;
const LAST_DESCRIPTOR: u8 = 255;

/// The first [`DATA`] bytes of a disk with a file of this length.
pub fn head(bytes: u64) -> Vec<u8> {
    let length = u32::try_from(bytes).expect("invariant: callers keep MAX_BYTES");
    let mut disk = vec![0; DATA as usize];
    let root = record(&[0], DIRECTORY as u32, SECTOR as u32, IS_DIRECTORY);

    let descriptor = &mut disk[PRIMARY * SECTOR..][..SECTOR];
    descriptor[0] = VERSION;
    descriptor[1..6].copy_from_slice(b"CD001");
    descriptor[6] = VERSION;
    descriptor[8..72].fill(b' ');
    both32(&mut descriptor[80..88], (DATA as usize / SECTOR) as u32 + length.div_ceil(SECTOR as u32));
    both16(&mut descriptor[120..124], 1);
    both16(&mut descriptor[124..128], 1);
    both16(&mut descriptor[128..132], SECTOR as u16);
    both32(&mut descriptor[132..140], PATH_ENTRY);
    descriptor[140..144].copy_from_slice(&(TABLE as u32).to_le_bytes());
    descriptor[148..152].copy_from_slice(&(BIG_TABLE as u32).to_be_bytes());
    descriptor[156..156 + root.len()].copy_from_slice(&root);
    descriptor[190..813].fill(b' ');
    descriptor[881] = VERSION;

    let last = &mut disk[TERMINATOR * SECTOR..][..7];
    last[0] = LAST_DESCRIPTOR;
    last[1..6].copy_from_slice(b"CD001");
    last[6] = VERSION;

    // One directory, the root: a name of one byte, its place, and that it is its own parent.
    let table = &mut disk[TABLE * SECTOR..][..PATH_ENTRY as usize];
    table[0] = 1;
    table[2..6].copy_from_slice(&(DIRECTORY as u32).to_le_bytes());
    table[6..8].copy_from_slice(&1u16.to_le_bytes());
    let table = &mut disk[BIG_TABLE * SECTOR..][..PATH_ENTRY as usize];
    table[0] = 1;
    table[2..6].copy_from_slice(&(DIRECTORY as u32).to_be_bytes());
    table[6..8].copy_from_slice(&1u16.to_be_bytes());

    let parent = record(&[1], DIRECTORY as u32, SECTOR as u32, IS_DIRECTORY);
    let file = record(RECORDED_NAME, (DATA as usize / SECTOR) as u32, length, 0);
    let records = [root, parent, file].concat();
    disk[DIRECTORY * SECTOR..][..records.len()].copy_from_slice(&records);
    disk
}

/// Bytes of the only entry of a table of paths.
const PATH_ENTRY: u32 = 10;

/// A record of a directory.
fn record(name: &[u8], sector: u32, bytes: u32, flags: u8) -> Vec<u8> {
    let length = (33 + name.len()).next_multiple_of(2);
    let mut record = vec![0; length];
    record[0] = length as u8;
    both32(&mut record[2..10], sector);
    both32(&mut record[10..18], bytes);
    // The first of January of 1970.
    record[18..21].copy_from_slice(&[70, 1, 1]);
    record[25] = flags;
    both16(&mut record[28..32], 1);
    record[32] = name.len() as u8;
    record[33..33 + name.len()].copy_from_slice(name);
    record
}

/// A number in both orders of bytes.
fn both32(room: &mut [u8], value: u32) {
    room[..4].copy_from_slice(&value.to_le_bytes());
    room[4..].copy_from_slice(&value.to_be_bytes());
}

fn both16(room: &mut [u8], value: u16) {
    room[..2].copy_from_slice(&value.to_le_bytes());
    room[2..].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_finds_the_file() {
        let disk = head(12_288);
        let at = |place: usize| u32::from_le_bytes(disk[place..place + 4].try_into().expect("four")) as usize;
        assert_eq!(&disk[PRIMARY * SECTOR + 1..][..5], b"CD001");
        let root = at(PRIMARY * SECTOR + 158) * SECTOR;
        let first = disk[root] as usize;
        let file = root + first + disk[root + first] as usize;
        assert_eq!((at(file + 2) * SECTOR, at(file + 10)), (DATA as usize, 12_288));
        assert_eq!(&disk[file + 33..][..RECORDED_NAME.len()], RECORDED_NAME);
    }
}
