//! A workload as a trace.

use super::fill::PageChoice;
use super::spec::WorkloadSpec;
use super::stream::{Stream, Tag};
use crate::reader::{BLOCK_ENTRIES, TraceReader};
use crate::{Entry, Kind, TraceError};

/// Generates the accesses of a workload block by block. Making it again gives the same accesses again.
pub struct GeneratorReader {
    choice: PageChoice,
    writes: Stream,
    write_sixteenths: u64,
    accesses: u64,
    handed_out: u64,
}

impl GeneratorReader {
    /// Builds the tables of a workload: for Zipf 20 bytes per page and some ten nanoseconds per page.
    ///
    /// # Errors
    /// Parameters that do not fit together, if the specification was not parsed from text.
    pub fn new(spec: &WorkloadSpec) -> Result<GeneratorReader, TraceError> {
        let wrong = |reason: String| TraceError::Workload { spec: spec.to_string(), reason };
        spec.check().map_err(wrong)?;
        let choice = PageChoice::new(spec)
            .ok_or_else(|| wrong("the weights of so many pages do not fit; fewer pages or a larger theta do".into()))?;
        Ok(GeneratorReader {
            choice,
            writes: Stream::new(spec.seed, Tag::Writes),
            write_sixteenths: if spec.takes("writes") { spec.write_sixteenths } else { 0 },
            accesses: spec.accesses,
            handed_out: 0,
        })
    }
}

impl TraceReader for GeneratorReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        let count = (self.accesses - self.handed_out).min(BLOCK_ENTRIES as u64) as usize;
        self.choice.fill(count, out);
        if self.write_sixteenths > 0 {
            for entry in out.iter_mut().filter(|entry| entry.kind() == Some(Kind::Anon) && !entry.write()) {
                entry.0 |= if self.writes.chance(self.write_sixteenths) { Entry::WRITE } else { 0 };
            }
        }
        self.handed_out += count as u64;
        Ok(count)
    }

    fn total(&self) -> Option<u64> {
        Some(self.accesses)
    }

    fn progress(&self) -> Option<f64> {
        Some(self.handed_out as f64 / self.accesses as f64)
    }
}
