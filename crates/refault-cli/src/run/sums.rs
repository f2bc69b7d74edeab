//! What the monitors of a tree came to so far: the lines that agents append to a file without a name, read as they
//! come.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use refault_console::Failure;
use serde_json::Value;

use crate::inherited::Unnamed;
use crate::launch::Launch;

/// The last sums of each process.
pub(super) struct Sums {
    _place: Unnamed,
    file: File,
    /// The beginning of a line whose rest is yet to come.
    pending: Vec<u8>,
    latest: BTreeMap<i32, Value>,
}

impl Sums {
    /// Has the agents write their sums.
    ///
    /// # Errors
    /// A file cannot be had.
    pub(super) fn of(launch: &mut Launch) -> Result<Sums, Failure> {
        let place = Unnamed::new()?;
        let sums = launch.output(place.path())?;
        // Without a monitor there are none.
        if let Some(monitor) = &mut launch.settings().monitor {
            monitor.sums = Some(sums);
        }
        let file = File::open(place.path()).map_err(|error| Failure::write("a temporary file", &error))?;
        Ok(Sums { _place: place, file, pending: Vec::new(), latest: BTreeMap::new() })
    }

    /// The last sums of a process, if there are any yet.
    pub(super) fn latest(&mut self, process: i32) -> Option<&Value> {
        // What cannot be read now may be read with the next line.
        let _ = self.file.read_to_end(&mut self.pending);
        let whole = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in self.pending.drain(..whole).collect::<Vec<_>>().split(|byte| *byte == b'\n') {
            if let Ok(line) = serde_json::from_slice::<Value>(line)
                && let Some(process) = line["pid"].as_i64()
            {
                self.latest.insert(process as i32, line);
            }
        }
        self.latest.get(&process)
    }
}
