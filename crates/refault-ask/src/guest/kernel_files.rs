//! Files of the kernel, read whole and written in one call, and the line to the host.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;

use crate::job::Said;

/// The second serial line; the first one is the kernel's console.
const LINE: &str = "/dev/ttyS1";

/// What a file says.
pub(super) fn text(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// Writes into a file.
pub(super) fn tell(path: &str, what: &str) -> Result<(), String> {
    let opened = OpenOptions::new().write(true).open(path);
    opened.and_then(|mut file| file.write_all(what.as_bytes())).map_err(|error| format!("{path} <- {what}: {error}"))
}

/// Writes into a file of a kernel that may not have it.
pub(super) fn tell_if_there(path: &str, what: &str) {
    if std::path::Path::new(path).exists() {
        let _ = tell(path, what);
    }
}

/// A line for the host.
pub(super) fn say(line: &Said) {
    // Without the line nothing can be said, and the host notices the silence.
    let _ = tell(LINE, &format!("{line}\n"));
}

/// Lines of a name and a number.
pub(super) fn numbers(text: &str) -> BTreeMap<&str, u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.trim().parse().ok()?)))
        .collect()
}

/// The stall times of a file of pressure, in microseconds: of some and of all.
pub(super) fn pressure(text: &str) -> [u64; 2] {
    ["some", "full"].map(|kind| {
        let line = text.lines().find(|line| line.starts_with(kind)).unwrap_or_default();
        line.split("total=").nth(1).and_then(|total| total.trim().parse().ok()).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_pressure_are_read() {
        assert_eq!(numbers("pgscan 12\npgsteal 7\nName: x\n").get("pgsteal"), Some(&7));
        let lines =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=12\n";
        assert_eq!((pressure(lines), pressure("")), ([345, 12], [0, 0]));
    }
}
