//! What `/proc` and `/sys` say of the machine.

use std::path::{Path, PathBuf};

use refault_lab::meminfo;

use super::{Finding, Status};
use refault_lab::size::bytes_text;

/// A machine under a root directory: `/`, or a copy in a test.
pub(super) struct Machine {
    root: PathBuf,
}

impl Machine {
    pub(super) fn new(root: &Path) -> Machine {
        Machine { root: root.to_owned() }
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    pub(super) fn kernel(&self) -> Finding {
        let release = self.read("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
        Finding::new("kernel", Status::Works, format!("Linux {release}, {}", std::env::consts::ARCH))
    }

    /// What decides how this kernel reclaims, and what it lets users do.
    pub(super) fn settings(&self) -> Finding {
        let lists = match self.read("sys/kernel/mm/lru_gen/enabled").as_deref() {
            None => "classic lists, generations not built",
            Some("0x0000" | "0") => "classic lists, generations off",
            Some(_) => "generations on",
        };
        let groups = match self.root.join("sys/fs/cgroup/cgroup.controllers").exists() {
            true => "control groups of version 2",
            false => "control groups of version 1",
        };
        let zswap = match self.read("sys/module/zswap/parameters/enabled").as_deref() {
            Some("Y") => "zswap on",
            _ => "zswap off",
        };
        let userfaultfd = match self.number("proc/sys/vm/unprivileged_userfaultfd") {
            Some(0) => "userfaultfd for users: their own faults alone",
            Some(_) => "userfaultfd for users: all faults",
            None => "userfaultfd not built",
        };
        Finding::new("kernel settings", Status::Works, format!("{lists}; {groups}; {zswap}; {userfaultfd}"))
    }

    fn memory_total(&self) -> u64 {
        self.read("proc/meminfo").and_then(|text| meminfo::bytes(&text, "MemTotal")).unwrap_or(0)
    }

    /// The tightest limit of the control groups around this process, of either version.
    fn limit(&self) -> Option<(u64, String)> {
        let groups = self.read("proc/self/cgroup")?;
        let mut tightest: Option<(u64, String)> = None;
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let (base, file) = match controllers {
                "" => ("sys/fs/cgroup", "memory.max"),
                list if list.split(',').any(|name| name == "memory") => {
                    ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
                }
                _ => continue,
            };
            // Each group on the way up may limit.
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                let place = Path::new(base).join(group).join(file).display().to_string();
                // Inside a container the group's own path may be the root of what is mounted.
                if let Some(bytes) = self.number(&place)
                    && bytes < 1 << 60
                    && tightest.as_ref().is_none_or(|(least, _)| bytes < *least)
                {
                    tightest = Some((bytes, format!("/{place}")));
                }
            }
        }
        tightest
    }

    pub(super) fn memory_limit(&self) -> Finding {
        let total = bytes_text(self.memory_total());
        match self.limit() {
            None => {
                Finding::new("memory limit", Status::Works, format!("none by a control group; the machine has {total}"))
            }
            Some((bytes, place)) => {
                let detail = format!("{} by {place}; the machine has {total}", bytes_text(bytes));
                Finding::new(
                    "memory limit",
                    Status::Works,
                    format!("{detail}; --memory and the compressed pool must fit"),
                )
            }
        }
    }

    pub(super) fn swap(&self) -> Finding {
        let swaps = self.read("proc/swaps").unwrap_or_default();
        let devices: Vec<String> = swaps
            .lines()
            .skip(1)
            .filter_map(|line| {
                let mut fields = line.split_whitespace();
                let name = fields.next()?;
                let kib: u64 = fields.nth(1)?.parse().ok()?;
                Some(format!("{name} ({})", bytes_text(kib << 10)))
            })
            .collect();
        if devices.is_empty() {
            return Finding::new("swap", Status::Works, "none: managed memory needs none, and nothing else is swapped");
        }
        let detail = format!("{}: the kernel may swap the compressed pool out once more", devices.join(", "));
        Finding::new("swap", Status::Limited, detail).improve("sudo swapoff -a")
    }

    pub(super) fn zram(&self) -> Finding {
        let devices = std::fs::read_dir(self.root.join("sys/block"));
        let mut names: Vec<String> = devices
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("zram"))
            .collect();
        names.sort();
        if names.is_empty() {
            return Finding::new(
                "zram",
                Status::Limited,
                "no device: only comparisons with the kernel's swap need one",
            )
            .improve("sudo modprobe zram");
        }
        let algorithms = self.read(&format!("sys/block/{}/comp_algorithm", names[0])).unwrap_or_default();
        Finding::new("zram", Status::Works, format!("{}, {algorithms}: for comparisons", names.join(", ")))
    }

    pub(super) fn pressure(&self) -> Finding {
        match self.read("proc/pressure/memory") {
            Some(text) => {
                let some = text.lines().next().unwrap_or_default().split_whitespace().nth(1).unwrap_or_default();
                Finding::new("pressure (PSI)", Status::Works, format!("of the machine: some {some} %"))
            }
            None => {
                Finding::new("pressure (PSI)", Status::Limited, "not shown: the statistics have the pager's own only")
                    .improve("boot with psi=1")
            }
        }
    }

    pub(super) fn damon(&self) -> Finding {
        let base = "sys/kernel/mm/damon/admin/kdamonds";
        if !self.root.join(base).is_dir() {
            let detail = "not built: refault's own monitor needs none";
            return Finding::new("DAMON", Status::Limited, detail)
                .improve("boot a kernel built with CONFIG_DAMON_SYSFS=y");
        }
        let Some(count) = self.number(&format!("{base}/nr_kdamonds")) else {
            return Finding::new("DAMON", Status::Limited, "there, but only root may use it")
                .improve("sudo refault doctor");
        };
        let running = (0..count)
            .filter(|index| self.read(&format!("{base}/{index}/state")).as_deref() == Some("on"))
            .map(|index| index.to_string())
            .collect::<Vec<_>>();
        if running.is_empty() {
            return Finding::new(
                "DAMON",
                Status::Works,
                "free: the kernel can be the source of 'refault monitor --source kernel'",
            );
        }
        let detail = format!(
            "kdamond {} is in use by others and is not touched; a further one cannot be added while it runs",
            running.join(", ")
        );
        Finding::new("DAMON", Status::Limited, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let directory = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("makes");
            std::fs::write(path, text).expect("writes");
        }
        let machine = Machine::new(directory.path());
        (directory, machine)
    }

    #[test]
    fn settings_are_what_the_files_say() {
        let (_keep, old) = machine(&[]);
        assert_eq!(
            old.settings().detail,
            "classic lists, generations not built; control groups of version 1; zswap off; userfaultfd not built"
        );
        let (_keep, new) = machine(&[
            ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/module/zswap/parameters/enabled", "Y\n"),
            ("proc/sys/vm/unprivileged_userfaultfd", "0\n"),
        ]);
        assert_eq!(
            new.settings().detail,
            "generations on; control groups of version 2; zswap on; userfaultfd for users: their own faults alone"
        );
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let (_keep, machine) = machine(&[
            ("proc/self/cgroup", "4:memory:/a/b\n0::/x\n"),
            ("proc/meminfo", "MemTotal:       16777216 kB\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2147483648\n"),
            ("sys/fs/cgroup/x/memory.max", "max\n"),
        ]);
        let found = machine.memory_limit();
        assert!(found.detail.starts_with("1 GiB by /sys/fs/cgroup/memory/a/memory.limit_in_bytes"), "{}", found.detail);
    }

    #[test]
    fn a_kdamond_in_use_is_said_to_be_left_alone() {
        let base = "sys/kernel/mm/damon/admin/kdamonds";
        let (_keep, free) = machine(&[(&format!("{base}/nr_kdamonds"), "1\n"), (&format!("{base}/0/state"), "off\n")]);
        assert_eq!(free.damon().status, Status::Works);
        let (_keep, busy) = machine(&[(&format!("{base}/nr_kdamonds"), "1\n"), (&format!("{base}/0/state"), "on\n")]);
        let found = busy.damon();
        assert!(found.status == Status::Limited && found.detail.contains("kdamond 0 is in use"), "{}", found.detail);
        let (_keep, none) = machine(&[]);
        assert!(none.damon().improve.is_some());
    }

    #[test]
    fn swap_zram_and_pressure_are_read() {
        let (_keep, full) = machine(&[
            ("proc/swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 1048572 0 100\n"),
            ("sys/block/zram0/comp_algorithm", "lzo [lz4] zstd\n"),
            ("proc/pressure/memory", "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00\n"),
        ]);
        assert!(
            full.swap().detail.contains("/dev/zram0 (1.00 GiB)")
                || full.swap().detail.contains("/dev/zram0 (1024 MiB)")
        );
        assert_eq!(full.swap().improve.as_deref(), Some("sudo swapoff -a"));
        assert!(full.zram().detail.contains("[lz4]"));
        assert!(full.pressure().detail.contains("avg10=1.50"));
        let (_keep, bare) = machine(&[]);
        assert_eq!(bare.zram().improve.as_deref(), Some("sudo modprobe zram"));
        assert_eq!(bare.pressure().improve.as_deref(), Some("boot with psi=1"));
        assert_eq!(bare.swap().status, Status::Works);
    }
}
