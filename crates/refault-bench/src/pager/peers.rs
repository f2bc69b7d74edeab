//! Who is compared, in full: kernel, lists, cgroup, swap, machine.

use std::path::Path;

/// One line, which says why if the kernel backend is not among them. `allowance`: bytes that it has for what the pager does not count.
pub fn describe(kernel_missing: Option<&str>, allowance: u64) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let lists = match read("/sys/kernel/mm/lru_gen/enabled").as_str() {
        "" | "0x0000" => "active and inactive lists".to_owned(),
        bits => format!("multi-generational LRU ({bits})"),
    };
    let cgroup = if Path::new("/sys/fs/cgroup/memory").exists() { 1 } else { 2 };
    let readahead = 1u32 << read("/proc/sys/vm/page-cluster").parse::<u32>().unwrap_or(0).min(10);
    let memory = refault_lab::meminfo::of_this_machine("MemTotal").unwrap_or(0) >> 30;
    let backend = match kernel_missing {
        Some(why) => format!("no `refault run --backend kernel`: {why}"),
        None => format!(
            "kernel: `refault run --backend kernel`, which counts code, files and page tables and is given {} MiB for them",
            allowance >> 20
        ),
    };
    format!(
        "refault {} run, without options but those named; {backend}; the kernel's side: Linux {}, {lists}, memory cgroup of version \
         {cgroup}, zram with lz4 as it comes, swap read in {readahead} pages at once; {} processors, {memory} GiB",
        env!("CARGO_PKG_VERSION"),
        read("/proc/sys/kernel/osrelease"),
        std::thread::available_parallelism().map_or(1, usize::from),
    )
}
