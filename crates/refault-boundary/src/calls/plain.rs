//! Calls that may be made from a patched site.

use crate::calls::leaving;
use crate::calls::pointed;
use crate::files::descriptors;
use crate::files::memory_files;
use crate::files::pieces;
use crate::table::{self, By, Memory, Row};

/// The row of a call that may be made from a patched site with these arguments: nothing of them is replaced, and
/// nothing beside it is done.
pub(crate) fn plain_row(number: usize, arguments: [usize; 6]) -> Option<&'static Row> {
    let [a, b, c, ..] = arguments;
    let row = table::of(number).filter(|row| row.jumps)?;
    let is_plain = match row.by {
        By::Transfer if leaving::gives_pages_away(number, arguments) => false,
        By::Transfer => !memory_files::may_be_open() && !pieces::exceeds(number, arguments),
        By::Descriptor => {
            !descriptors::is_about_own(number, arguments) && !descriptors::changes_standard_error(number, arguments)
        }
        By::Folder => !descriptors::is_folder_of_proc(a),
        By::Device => !pointed::is_refused(b, c),
        _ => row.memory.iter().all(|memory| !matches!(memory, Memory::MaskMeanwhile(at) if arguments[*at] != 0)),
    };
    is_plain.then_some(row)
}
