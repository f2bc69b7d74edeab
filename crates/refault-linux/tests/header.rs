//! The lists against the headers of the machine that tests them: a call that is new there fails until it is listed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

use refault_linux::files::{Stat, StatFs};
use refault_linux::{advice, calls, clone, errno, files, flags, i386, options, requests, signals, sockets};

/// Numbers of a header by name; `None` where the machine has no such header.
fn header(name: &str) -> Option<BTreeMap<String, usize>> {
    let text = ["/usr/include/x86_64-linux-gnu/asm", "/usr/include/asm"]
        .into_iter()
        .find_map(|folder| std::fs::read_to_string(format!("{folder}/{name}")).ok())?;
    let numbers = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    });
    Some(numbers.collect())
}

fn compare(name: &str, listed: &[(usize, &str)]) {
    let Some(header) = header(name) else {
        println!("no {name} here: nothing is compared");
        return;
    };
    assert!(header.len() > 300, "{name} has {} calls", header.len());
    let listed: BTreeMap<&str, usize> = listed.iter().map(|(number, name)| (*name, *number)).collect();
    for (call, number) in header {
        assert_eq!(listed.get(call.as_str()), Some(&number), "{call} of {name} is not listed with its number");
    }
}

#[test]
fn every_call_of_the_machine_is_listed() {
    compare("unistd_64.h", calls::ALL);
    compare("unistd_32.h", i386::ALL);
}

#[test]
fn lists_are_in_order_and_names_are_found() {
    for list in [calls::ALL, i386::ALL] {
        assert!(list.is_sorted_by(|(before, _), (after, _)| before < after));
    }
    assert!(calls::ALL.iter().all(|(number, name)| calls::name(*number) == Some(name)));
    assert!(i386::ALL.iter().all(|(number, name)| i386::name(*number) == Some(name)));
    assert_eq!((calls::name(400), i386::name(222)), (None, None));
}

#[test]
fn flags_of_children_are_single_bits_and_differ() {
    let all = clone::FLAGS.iter().map(|flag| flag.bit).inspect(|bit| assert!(bit.is_power_of_two()));
    assert_eq!(all.fold(0, |sum, bit| sum | bit).count_ones() as usize, clone::FLAGS.len());
    // `clone` has 32 bits, of which the lowest byte is a signal.
    for flag in clone::FLAGS {
        let fits = flag.bit <= u64::from(u32::MAX) && flag.bit & clone::CSIGNAL == 0;
        assert_eq!(flag.by_clone, fits, "{}", flag.name);
    }
}

/// What the machine's own compiler says of numbers and places, by the headers; `None` where it has no compiler, or no
/// headers. Names that the headers lack are left out.
fn compiled(names: &[&str], places: &[(&str, &str)], sizes: &[&str]) -> Option<BTreeMap<String, i64>> {
    const HEADERS: &[&str] = &[
        "sys/stat.h",
        "sys/statfs.h",
        "dirent.h",
        "sys/mman.h",
        "sys/wait.h",
        "sys/uio.h",
        "sys/socket.h",
        "sys/sem.h",
        "sys/prctl.h",
        "sys/ptrace.h",
        "sys/personality.h",
        "sched.h",
        "linux/sched.h",
        "sys/sysmacros.h",
        "net/if.h",
        "netinet/in.h",
        "fcntl.h",
        "errno.h",
        "poll.h",
        "signal.h",
        "time.h",
        "linux/audit.h",
        "linux/auxvec.h",
        "linux/bpf.h",
        "linux/btrfs.h",
        "linux/capability.h",
        "linux/dm-ioctl.h",
        "linux/elf.h",
        "linux/fiemap.h",
        "linux/fs.h",
        "linux/fsmap.h",
        "linux/futex.h",
        "linux/if_tun.h",
        "linux/keyctl.h",
        "linux/magic.h",
        "linux/major.h",
        "linux/mount.h",
        "linux/net.h",
        "linux/random.h",
        "linux/seccomp.h",
        "linux/sockios.h",
        "linux/tty.h",
        "linux/userfaultfd.h",
        "asm/hwcap2.h",
        "asm/prctl.h",
    ];
    let mut program =
        String::from("#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdio.h>\n#include <sys/resource.h>\n");
    for header in HEADERS {
        let _ = writeln!(program, "#if __has_include(<{header}>)\n#include <{header}>\n#endif");
    }
    program += "int main(void) {\n";
    let first = program.lines().count();
    let numbers = names.iter().map(|name| format!("printf(\"{name} %lld\\n\", (long long)({name}));"));
    let places = places
        .iter()
        .map(|(structure, field)| format!("printf(\"{structure}.{field} %zu\\n\", offsetof({structure}, {field}));"));
    let sizes = sizes.iter().map(|structure| format!("printf(\"{structure} %zu\\n\", sizeof({structure}));"));
    let mut lines: Vec<String> = numbers.chain(places).chain(sizes).collect();
    let made = std::env::temp_dir().join(format!("refault-headers-{}-{}", std::process::id(), lines.len()));
    loop {
        let whole = format!("{program}{}\nreturn 0; }}\n", lines.join("\n"));
        let compiler = Command::new("cc")
            .args(["-x", "c", "-w", "-fno-diagnostics-show-caret", "-o"])
            .arg(&made)
            .arg("-")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut compiler = compiler.ok()?;
        compiler.stdin.take().expect("piped").write_all(whole.as_bytes()).expect("the compiler reads");
        let ended = compiler.wait_with_output().expect("it ends");
        if ended.status.success() {
            break;
        }
        // What the headers lack is left out, and the rest compiled again.
        let complaints = String::from_utf8_lossy(&ended.stderr).into_owned();
        let of_lines =
            complaints.lines().filter_map(|line| line.strip_prefix("<stdin>:")?.split(':').next()?.parse().ok());
        let unknown: Vec<usize> = of_lines.filter(|line: &usize| *line > first).collect();
        assert!(!unknown.is_empty(), "the headers do not go together: {complaints}");
        unknown.into_iter().for_each(|line| lines[line - first - 1].clear());
    }
    let said = Command::new(&made).output().expect("it runs").stdout;
    std::fs::remove_file(made).expect("made above");
    let said = String::from_utf8(said).expect("text");
    let lines = said.lines().filter_map(|line| line.rsplit_once(' '));
    Some(lines.map(|(name, number)| (name.to_owned(), number.parse().expect("a number"))).collect())
}

#[test]
#[cfg(target_arch = "x86_64")]
fn numbers_are_those_of_the_headers() {
    let lists =
        [advice::ALL, errno::ALL, files::ALL, flags::ALL, options::ALL, requests::ALL, signals::ALL, sockets::ALL];
    let listed: Vec<(&str, i64)> = lists.into_iter().flatten().copied().collect();
    let names: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    let Some(said) = compiled(&names, &[], &[]) else {
        println!("no compiler here: nothing is compared");
        return;
    };
    let mut missing = Vec::new();
    for (name, number) in &listed {
        // Errors are negative here.
        let sign = if errno::ALL.iter().any(|(error, _)| error == name) { -1 } else { 1 };
        match said.get(*name) {
            Some(header) => assert_eq!(sign * number, *header, "{name}"),
            None => missing.push(*name),
        }
    }
    println!("not in this machine's headers: {}", missing.join(" "));
    assert!(missing.len() * 8 < listed.len(), "{missing:?}");
    let known: BTreeMap<&str, i64> = clone::FLAGS.iter().map(|flag| (flag.name, flag.bit as i64)).collect();
    let said = compiled(&known.keys().copied().collect::<Vec<_>>(), &[], &[]).expect("as above");
    assert!(said.len() > 20 && said.iter().all(|(name, bit)| known[name.as_str()] == *bit), "{said:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn structures_are_those_of_the_headers() {
    let lists = [files::PLACES, requests::PLACES, signals::PLACES, sockets::PLACES];
    let mut listed: Vec<(&str, &str, usize)> = lists.into_iter().flatten().copied().collect();
    listed.extend([
        ("struct stat", "st_dev", offset_of!(Stat, device)),
        ("struct stat", "st_ino", offset_of!(Stat, inode)),
        ("struct stat", "st_nlink", offset_of!(Stat, links)),
        ("struct stat", "st_mode", offset_of!(Stat, mode)),
        ("struct stat", "st_uid", offset_of!(Stat, owners)),
        ("struct stat", "st_rdev", offset_of!(Stat, represents)),
        ("struct stat", "st_size", offset_of!(Stat, bytes)),
        ("struct stat", "st_blksize", offset_of!(Stat, rest)),
        ("struct statfs", "f_type", offset_of!(StatFs, kind)),
        ("struct _fpx_sw_bytes", "magic1", 0),
        ("struct _fpx_sw_bytes", "extended_size", signals::FPSTATE_BYTES - signals::FPSTATE_MAGIC),
    ]);
    let sizes = [
        ("struct stat", size_of::<Stat>()),
        ("struct statfs", size_of::<StatFs>()),
        ("struct msghdr", sockets::MSGHDR),
        ("struct mmsghdr", sockets::MMSGHDR),
        ("struct cmsghdr", sockets::CMSGHDR),
        ("struct sockaddr_storage", sockets::ADDRESS),
        ("struct fiemap_extent", requests::FIEMAP_EXTENT),
        ("struct file_dedupe_range_info", requests::DEDUPE_FILE),
        ("struct fsmap", requests::FSMAP_RECORD),
        ("struct bpf_insn", requests::INSTRUCTION),
        ("struct _fpstate", signals::FPSTATE_LEGACY),
        ("struct _fpx_sw_bytes", signals::FPSTATE_LEGACY - signals::FPSTATE_MAGIC),
    ];
    let places: Vec<(&str, &str)> = listed.iter().map(|(structure, field, _)| (*structure, *field)).collect();
    let Some(said) = compiled(&[], &places, &sizes.map(|(structure, _)| structure)) else {
        println!("no compiler here: nothing is compared");
        return;
    };
    let mut missing = Vec::new();
    for (structure, field, place) in listed {
        match said.get(&format!("{structure}.{field}")) {
            Some(header) => assert_eq!(*header, place as i64, "{structure}.{field}"),
            None => missing.push(field),
        }
    }
    println!("not in this machine's headers: {}", missing.join(" "));
    assert!(missing.len() < 4, "{missing:?}");
    for (structure, bytes) in sizes {
        assert_eq!(said[structure], bytes as i64, "{structure}");
    }
}
