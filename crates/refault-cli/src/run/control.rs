//! `--memory-control FILE`: the budget while the program runs, as a small file that holds its bytes.
//!
//! It may be written as `--memory` is. What is no budget is not taken, and said once it stands for two looks: it may be
//! half written. A process
//! makes room when it enters the kernel or faults; one that does neither is asked to ([`super::ask`]).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refault_config::units::size;
use refault_console::say;
use refault_host::text::printable;
use refault_lab::size::bytes_text;
use refault_paging::MIN_PROGRAM_BYTES;
use refault_paging::Shared;

/// Bytes of the file that are looked at.
const MAX_TEXT: usize = 64;
/// Looks at the file.
pub(super) const EVERY: Duration = Duration::from_millis(100);

pub(super) struct Control<'a> {
    path: &'a Path,
    last: Option<u64>,
    looked: Instant,
    /// What was no budget at the last look, and whether that was said.
    wrong: Option<(String, bool)>,
}

impl<'a> Control<'a> {
    pub(super) fn new(path: &'a Path) -> Control<'a> {
        Control { path, last: None, looked: Instant::now(), wrong: None }
    }

    /// A budget that has been written since the last call.
    pub(super) fn wanted(&mut self) -> Option<u64> {
        let text = std::fs::read(self.path).ok()?;
        let text = printable(text.get(..MAX_TEXT).unwrap_or(&text).trim_ascii());
        match size(&text) {
            Ok(bytes) if bytes >= MIN_PROGRAM_BYTES => {
                self.wrong = None;
                (self.last.replace(bytes) != Some(bytes)).then_some(bytes)
            }
            _ => {
                if let Some(line) = self.complaint(text) {
                    say(line);
                }
                None
            }
        }
    }

    /// What to say of a text that is no budget, once.
    fn complaint(&mut self, text: String) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        let (is_new, was_said) = match &self.wrong {
            Some((before, said)) if *before == text => (false, *said),
            _ => (true, false),
        };
        let says = !is_new && !was_said;
        let line = format!(
            "{}: '{text}' is no budget, and not taken: write bytes, or a size such as 64M, of at least {}",
            self.path.display(),
            bytes_text(MIN_PROGRAM_BYTES)
        );
        self.wrong = Some((text, was_said || says));
        says.then_some(line)
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.looked.elapsed() >= EVERY;
        if is_due {
            self.looked = Instant::now();
        }
        is_due
    }

    /// Applies a changed budget.
    pub(super) fn look(&mut self, shared: &Shared) {
        if !self.is_due() {
            return;
        }
        if let Some(bytes) = self.wanted() {
            shared.set_limit(bytes);
        }
        make_room(shared);
    }
}

/// Asks the processes of a tree that uses more than it may to make room.
pub(super) fn make_room(shared: &Shared) {
    if shared.is_over() {
        let processes = shared.living().map(|(slot, _)| slot.process.load(Ordering::Relaxed));
        processes.for_each(|process| super::ask::for_room(shared, process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_taken_and_what_is_none_is_said_once_it_stands() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut control = Control::new(file.path());
        let write = |text: &str, control: &mut Control| {
            std::fs::write(file.path(), text).expect("room");
            control.wanted()
        };
        assert_eq!(write("25M\n", &mut control), Some(25 << 20));
        assert_eq!(write("26214400", &mut control), None, "the same");
        assert_eq!(write("", &mut control), None);
        for text in ["abc", "-5", "0", "1000000", "99999999999999999999"] {
            assert_eq!(write(text, &mut control), None, "{text}");
            assert_eq!(control.wrong, Some((text.to_owned(), false)), "it may be half written");
            assert_eq!(write(text, &mut control), None, "{text}");
            assert_eq!(control.wrong, Some((text.to_owned(), true)), "it was said");
            assert_eq!(control.complaint(text.to_owned()), None, "once");
        }
        assert_eq!(write("30000000", &mut control), Some(30_000_000));
        assert_eq!(control.wrong, None);
    }
}
