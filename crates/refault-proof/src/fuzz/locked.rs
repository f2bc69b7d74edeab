//! How much a sequence has locked, by a model of its own: whether the tool may refuse to lock more.
//!
//! `mlock` under `refault run` says ENOMEM where the budget has no room for what would be locked, as it does alone beyond
//! RLIMIT_MEMLOCK, and `mmap` with MAP_LOCKED and `mremap` of locked memory say EAGAIN. That is right only where there is none: what the processes have locked is followed here by what they
//! printed alone, and set against what the tool promises. A process can always lock [`ALWAYS`]; the processes
//! that are there take at most [`PAGES_OF_A_PROCESS`] each beside what they have locked. What is refused within that is a
//! fault of the tool, such as locks that it counts still. Cost: a look at each line of the output.

use std::collections::BTreeSet;

/// Pages that a process can lock whatever the others do.
const ALWAYS: usize = 64;
/// Pages of a process that are neither locked nor to be had: half a mebibyte that come and go, and the most that the tool
/// takes of a process like the walker. That was 2.3 MiB when it was measured.
const PAGES_OF_A_PROCESS: usize = 128 + 640;
/// Pages that the command takes and those that are not given out.
const OF_THE_COMMAND: usize = 192;
const PAGES_PER_MIB: usize = 256;
/// How the walker maps what is locked at once.
const MAPPED_LOCKED: usize = 9;

/// A line of a sequence.
struct Line {
    name: String,
    numbers: Vec<usize>,
    /// The process that carries it out.
    process: usize,
}

/// What each process has locked.
struct Processes {
    lines: Vec<Line>,
    /// The parent of each; the first is its own.
    parents: Vec<usize>,
    locked: Vec<BTreeSet<usize>>,
}

impl Processes {
    fn new(sequence: &str) -> Processes {
        let mut all = Processes { lines: Vec::new(), parents: vec![0], locked: vec![BTreeSet::new()] };
        // Of each open block: who carried out what is around it.
        let mut open = Vec::new();
        let mut process = 0;
        for text in sequence.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let mut words = text.split_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            let numbers = words.filter_map(|word| word.parse().ok()).collect();
            if name == "end" {
                process = open.pop().unwrap_or(0);
            }
            let is_child = name == "spawn" || name == "and";
            let blocks = matches!(name.as_str(), "fork" | "thread" | "vfork" | "spawn");
            all.lines.push(Line { name, numbers, process });
            if blocks {
                open.push(process);
            }
            if is_child {
                all.parents.push(process);
                all.locked.push(BTreeSet::new());
                process = all.parents.len() - 1;
            }
        }
        all
    }

    /// An operation was carried out and said this.
    fn carried_out(&mut self, line: usize, said: &str) {
        let Some(Line { name, numbers, process }) = self.lines.get(line) else { return };
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        let (start, pages) = (number(0), number(1));
        let locked = &mut self.locked[*process];
        let done = said.ends_with("= 0") || said.ends_with("there") || said.ends_with("back");
        match (name.as_str(), done) {
            ("exec", _) => locked.clear(),
            // What lies before a hole is locked though the call fails.
            ("lock", _) if number(2) == 0 => locked.extend(start..start + pages),
            // What is locked where it is touched is not managed.
            ("lock" | "unmap", true) => locked.retain(|page| !(start..start + pages).contains(page)),
            ("map", true) => {
                locked.retain(|page| !(start..start + pages).contains(page));
                if number(3) == MAPPED_LOCKED {
                    locked.extend(start..start + pages);
                }
            }
            ("remap", true) => {
                let before = locked.len();
                locked.retain(|page| !(start..start + pages).contains(page));
                let to = if number(3) >= 2 || said.ends_with("back") { number(4) } else { start };
                let moves = before > locked.len();
                locked.retain(|page| !(to..to + number(2)).contains(page));
                if moves {
                    locked.extend(to..to + number(2));
                }
            }
            _ => {}
        }
    }

    /// Pages that the process of a line has locked if the line is carried out; `None` if it locks none.
    fn would_lock(&self, Line { name, numbers, process }: &Line) -> Option<usize> {
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        let (start, pages) = (number(0), number(1));
        let locked = &self.locked[*process];
        // What cannot be touched is locked without being filled.
        if name == "lock" || name == "map" && number(3) == MAPPED_LOCKED && number(2) != 0 {
            Some(locked.len() + (start..start + pages).filter(|page| !locked.contains(page)).count())
        } else if name == "remap" && (start..start + pages).any(|page| locked.contains(&page)) {
            Some(locked.len() + number(2).saturating_sub(pages))
        } else {
            None
        }
    }

    /// Whether there may be no room for what this line locks.
    fn may_be_too_much(&self, line: usize, memory_mib: usize) -> bool {
        let Some(asked) = self.lines.get(line) else { return false };
        let Some(of_it) = self.would_lock(asked).filter(|pages| *pages > ALWAYS) else { return false };
        let process = &asked.process;
        // Its ancestors are there, and children that wait for their parent or do not.
        let mut there = BTreeSet::from([*process]);
        let mut at = *process;
        while at != 0 {
            at = self.parents[at];
            there.insert(at);
        }
        let waiting = self.open_forks(line);
        let locked: usize = there.iter().filter(|one| *one != process).map(|one| self.locked[*one].len()).sum();
        let processes = there.len() + waiting;
        let room = (memory_mib * PAGES_PER_MIB).saturating_sub(OF_THE_COMMAND);
        of_it + locked + processes * PAGES_OF_A_PROCESS > room
    }

    /// Blocks of forks that are open in a line and whose parent carries it out: their children are there too.
    fn open_forks(&self, line: usize) -> usize {
        let mut open = Vec::new();
        for Line { name, .. } in &self.lines[..line] {
            match name.as_str() {
                "fork" => open.push(true),
                "thread" | "vfork" | "spawn" => open.push(false),
                "and" => open.last_mut().into_iter().for_each(|block| *block = false),
                "end" => drop(open.pop()),
                _ => {}
            }
        }
        open.into_iter().filter(|is_fork| *is_fork).count()
    }
}

/// Whether the tool may have no room for what said `refused` alone, after this output, within a budget.
pub fn may_be_refused(sequence: &str, output: &[String], refused: &str, memory_mib: u64) -> bool {
    let mut processes = Processes::new(sequence);
    let number = |line: &str| line.split(' ').next().and_then(|word| word.parse::<usize>().ok());
    for line in output {
        if let Some(index) = number(line) {
            processes.carried_out(index, line);
        }
    }
    number(refused).is_some_and(|index| processes.may_be_too_much(index, memory_mib as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(sequence: &str, output: &[&str], refused: &str) -> bool {
        let output: Vec<String> = output.iter().map(|line| (*line).to_owned()).collect();
        may_be_refused(sequence, &output, refused, 6)
    }

    #[test]
    fn a_little_may_not_be_refused_whatever_is_there() {
        let sequence = "map 0 70 2 0\nfork 0\nread 0 1\nand\nlock 0 64 0\nlock 64 1 0\nend\n";
        let output = ["0 map = there", "1 fork"];
        assert!(!refused(sequence, &output, "4 lock = 0"));
        assert!(refused(sequence, &["0 map = there", "1 fork", "4 lock = 0"], "5 lock = 0"));
    }

    #[test]
    fn what_is_mapped_locked_or_grows_may_be_refused_where_there_is_no_room() {
        let rest =
            "fork 0\nand\nfork 0\nand\nmap 0 194 1 9\nmap 0 194 0 9\nmap 0 194 1 0\nremap 0 194 300 2 500\nend\nend\n";
        let output = ["0 fork", "2 fork"];
        assert!(refused(rest, &output, "4 map = there"));
        // What cannot be touched is not filled, and what is not locked needs no room.
        assert!(!refused(rest, &output, "5 map = there") && !refused(rest, &output, "6 map = there"));
        assert!(!refused(rest, &output, "7 remap = there"));
        assert!(refused(rest, &["0 fork", "2 fork", "4 map = there"], "7 remap = there"));
        assert!(!refused("map 0 194 1 9\n", &[], "0 map = there"));
    }

    #[test]
    fn one_process_has_the_budget_for_itself_and_what_it_gave_back_does_not_count() {
        let first = "map 0 2000 2 0\n";
        let locks = |number: usize| (0..number).map(|at| format!("lock {} 60 0\n", at * 60)).collect::<String>();
        let said = |number: usize| {
            let mut all = vec!["0 map = there".to_owned()];
            all.extend((1..=number).map(|line| format!("{line} lock = 0")));
            all
        };
        let (few, many) = (format!("{first}{}", locks(5)), format!("{first}{}", locks(15)));
        assert!(!may_be_refused(&few, &said(4), "5 lock = 0", 6));
        assert!(may_be_refused(&many, &said(14), "15 lock = 0", 6));
        // Unlocked, unmapped, mapped anew: none of it is locked.
        for (line, says) in [("lock 0 840 2", "= 0"), ("unmap 0 840", "= 0"), ("map 0 840 2 0", "= there")] {
            let sequence = format!("{first}{}{line}\nlock 900 60 0\nlock 960 60 0\n", locks(14));
            let mut output = said(14);
            output.push(format!("15 {line} {says}"));
            assert!(!may_be_refused(&sequence, &output, "16 lock = 0", 6), "{line}");
        }
        // Nor is anything in a child.
        let sequence = format!("{first}{}fork 0\nread 0 1\nand\nlock 0 60 0\nend\n", locks(10));
        assert!(!may_be_refused(&sequence, &said(10), "14 lock = 0", 6));
    }

    #[test]
    fn what_is_locked_moves() {
        let sequence =
            "map 0 70 2 0\nlock 0 40 0\nremap 0 40 60 2 500\nlock 560 4 0\nlock 600 5 0\nfork 0\nread 0 1\nand\nend\n";
        let output = ["0 map = there", "1 lock = 0", "2 remap = there"];
        assert!(!refused(sequence, &output, "3 lock = 0"), "64 pages");
        let inside = "map 0 70 2 0\nlock 0 40 0\nremap 0 40 60 2 500\nfork 1\nlock 600 5 0\nand\nend\n";
        assert!(refused(inside, &[&output[..], &["3 fork"]].concat(), "4 lock = 0"), "65, and its child waits");
    }
}
