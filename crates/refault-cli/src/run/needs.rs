//! `refault run --pool NAME --needs SIZE|TRACE`: how much memory a program is to find before it begins.

use std::path::Path;

use refault_console::{Failure, say};
use refault_lab::curve::lru_curve;
use refault_lab::size::{Bytes, PAGE_BYTES, bytes_text};
use refault_lab::sweep::jobs;
use refault_trace::{Options, Source};

use crate::source::require_file;

/// Of a recording, the memory with which at most this share of its accesses miss beyond first touches.
const MISSES: f64 = 0.01;

/// Bytes, said as a size or by a recording of the program.
///
/// # Errors
/// It is no size, and no trace that can be read.
pub(super) fn bytes(text: &str) -> Result<u64, Failure> {
    let wrong = match text.parse::<Bytes>() {
        Ok(Bytes(bytes)) => return Ok(bytes),
        Err(why) => why,
    };
    let path = Path::new(text);
    if !path.exists() {
        let remedy = format!("{wrong}; or name a recording that refault record has made");
        return Err(Failure::usage("neither a size nor a file", text, remedy));
    }
    require_file(path)?;
    let curves = lru_curve(&Source::file(path, Options::default()), jobs(None), &())?;
    let working_set = curves.curves[0].memory_for(curves.first_touches() + MISSES);
    let bytes = working_set.map_or(curves.distinct_pages, |point| point.memory_pages) * PAGE_BYTES;
    let misses = MISSES * 100.0;
    let text = bytes_text(bytes);
    say(format_args!("{} needs {text}: with less, more than {misses} % of its accesses miss again", path.display()));
    Ok(bytes)
}
