//! Small C programs, each of which shows one thing that must be under `refault run` as it is without.
//!
//! They are in `c/`. A probe is right if it prints the same and ends the same alone and managed: the bare kernel says
//! what is right, not the harness. The search for keys in a core is the one exception.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::SeekFrom;
use tempfile::TempDir;

use crate::ProofError;
use crate::schedule;
use crate::trial::{self, Trial};

/// The budget of every probe, below the 8 MiB and more that each pushes out.
const MEMORY: &str = "6M";
/// A probe takes seconds at most, on a machine that does other work many times as long. One that hangs ends itself sooner.
const LIMIT: Duration = Duration::from_secs(180);
/// What the core of a probe must hold, lest a truncated one prove something.
const MARK: &[u8] = b"a mark that is in every whole core";

/// What a probe needs beside the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Nothing.
    Usual,
    /// The harness must be root.
    Root,
    /// It runs as a user without privileges, capabilities or the way to get new ones.
    Nobody,
    /// Its third argument is a static build of itself.
    WithStatic,
    /// As that, by root.
    RootWithStatic,
    /// Its core is searched for keys.
    Core,
}

/// One thing to show.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// What must hold.
    pub name: &'static str,
    /// File in `c/`.
    pub source: &'static str,
    /// What it is given.
    pub arguments: &'static [&'static str],
    /// What it needs.
    pub setting: Setting,
}

const fn usual(name: &'static str, source: &'static str, arguments: &'static [&'static str]) -> Probe {
    Probe { name, source, arguments, setting: Setting::Usual }
}

/// All of them.
pub const PROBES: [Probe; 82] = [
    usual("unmapped_memory_faults", "memory.c", &["unmapped"]),
    usual("wild_accesses_fault", "memory.c", &["wild"]),
    usual("fresh_mappings_are_zero", "memory.c", &["zero"]),
    usual("locks_and_advice_reach_the_kernel", "memory.c", &["flags"]),
    Probe { setting: Setting::Nobody, ..usual("all_memory_can_be_locked", "memory.c", &["locked"]) },
    usual("programs_may_have_a_userfaultfd", "memory.c", &["userfaultfd"]),
    Probe { setting: Setting::Root, ..usual("more_than_the_limit_can_be_locked_by_root", "memory.c", &["exceeds"]) },
    Probe { setting: Setting::Root, ..usual("who_serves_faults_may_lack_memory_itself", "memory.c", &["served"]) },
    usual("direct_reads_are_whole", "memory.c", &["direct"]),
    usual("spliced_pages_are_whole", "memory.c", &["spliced"]),
    usual("asynchronous_io_is_refused_or_right", "memory.c", &["aio"]),
    usual("condition_waits_survive", "waits.c", &["condition"]),
    usual("timed_waits_survive", "waits.c", &["timed"]),
    usual("semaphore_waits_survive", "waits.c", &["semaphore"]),
    usual("lock_waits_survive", "waits.c", &["lock"]),
    usual("mutex_waits_survive", "waits.c", &["mutex"]),
    usual("barrier_waits_survive", "waits.c", &["barrier"]),
    usual("short_waits_survive", "waits.c", &["many"]),
    usual("owners_of_robust_locks_are_seen_to_die", "waits.c", &["robust"]),
    usual("thread_identifiers_are_cleared", "waits.c", &["cleared"]),
    usual("alternate_stacks_of_8_kib_suffice", "stacks.c", &["alternate", "8192"]),
    usual("alternate_stacks_of_16_kib_suffice", "stacks.c", &["alternate", "16384"]),
    usual("signals_are_the_programs_after_a_filter", "stacks.c", &["filtered"]),
    usual("filters_may_forbid_the_return_of_handlers", "stacks.c", &["sandboxed"]),
    usual("filters_while_others_lack_memory_end_nobody", "stacks.c", &["asked"]),
    usual("signals_that_wait_survive_a_filter", "stacks.c", &["kept"]),
    usual("thread_stacks_of_16_kib_suffice", "stacks.c", &["thread", "16384"]),
    usual("overflows_reach_their_handler", "stacks.c", &["overflow"]),
    usual("stacks_in_mapped_memory_work", "stacks.c", &["mapped"]),
    usual("coroutines_on_mapped_stacks_work", "stacks.c", &["coroutines"]),
    usual("statuses_arrive_in_evicted_memory", "processes.c", &["wait"]),
    usual("commands_are_read_from_evicted_memory", "processes.c", &["commands"]),
    usual("no_datagram_is_lost_over_forks", "processes.c", &["datagrams"]),
    usual("threads_fork_at_once", "processes.c", &["storm"]),
    usual("generations_have_copies_of_their_own", "processes.c", &["generations"]),
    usual("the_last_thread_ends_the_program", "processes.c", &["last_thread"]),
    usual("programs_that_are_not_dumpable_go_on", "processes.c", &["not_dumpable"]),
    Probe { setting: Setting::Root, ..usual("name_spaces_can_be_entered", "processes.c", &["name_spaces"]) },
    usual("strict_filters_kill_nobody", "processes.c", &["strict"]),
    usual("signals_at_any_moment_change_nothing", "processes.c", &["timers"]),
    usual("calls_are_made_whatever_signals_come", "calls.c", &["signalled"]),
    usual("what_structures_point_to_is_brought_in", "calls.c", &["pointed"]),
    usual("large_writes_are_whole", "calls.c", &["written"]),
    usual("large_writes_that_are_interrupted_lose_nothing", "calls.c", &["interrupted"]),
    usual("large_buffers_are_filled_from_streams", "calls.c", &["received"]),
    usual("large_reads_and_writes_of_files_are_whole", "calls.c", &["files"]),
    usual("what_comes_with_a_large_message_comes_once", "calls.c", &["accompanied"]),
    usual("large_calls_end_where_the_kernel_ends_them", "pieces.c", &[]),
    usual("frequent_calls_are_right_whatever_signals_come", "sites.c", &["storm"]),
    usual("frequent_calls_are_interrupted_and_restarted", "sites.c", &["interrupted"]),
    usual("calls_that_fail_are_made_once", "sites.c", &["once"]),
    usual("actions_that_two_threads_set_at_once_hold", "sites.c", &["actions"]),
    usual("signals_that_wait_are_shown", "sites.c", &["pending"]),
    usual("threads_are_cancelled_in_frequent_calls", "sites.c", &["cancelled"]),
    usual("programs_may_use_the_register_of_the_fast_path", "sites.c", &["register"]),
    Probe { setting: Setting::Root, ..usual("programs_may_change_their_user", "processes.c", &["users"]) },
    Probe { setting: Setting::WithStatic, ..usual("static_children_run", "processes.c", &["static"]) },
    Probe { setting: Setting::Nobody, ..usual("no_privilege_is_needed", "processes.c", &["work"]) },
    usual("children_begin_by_whatever_flags", "doors.c", &["children"]),
    usual("a_process_advises_on_itself", "doors.c", &["advised"]),
    usual("a_process_reads_and_writes_itself", "doors.c", &["itself"]),
    usual("a_thread_reads_and_writes_its_process", "doors.c", &["of_thread"]),
    usual("calls_of_32_bits_are_made", "doors.c", &["gate"]),
    usual("a_process_reads_and_writes_its_child", "others.c", &["vectors"]),
    usual("a_process_reads_and_writes_its_child_as_a_file", "others.c", &["files"]),
    usual("parent_and_child_read_each_other", "others.c", &["parent"]),
    usual("a_process_is_read_by_the_number_of_a_thread", "others.c", &["thread"]),
    Probe { setting: Setting::Root, ..usual("elements_of_maps_are_moved_once", "again.c", &["maps"]) },
    usual("options_of_sockets_are_said_once", "again.c", &["sockets"]),
    usual("locks_extents_and_places_of_files_are_said_once", "again.c", &["files"]),
    usual("values_of_keys_and_semaphores_are_whole", "again.c", &["objects"]),
    usual("sets_and_times_are_changed_once", "again.c", &["sets"]),
    usual("nothing_is_written_to_what_became_descriptor_2", "descriptors.c", &["two"]),
    usual("closing_all_by_range_loses_nothing", "descriptors.c", &["closed"]),
    usual("closing_all_by_number_loses_nothing", "descriptors.c", &["one_by_one"]),
    usual("replacing_all_numbers_loses_nothing", "descriptors.c", &["replaced"]),
    usual("closed_standard_descriptors_stay_closed", "descriptors.c", &["three"]),
    usual("tables_of_descriptors_can_be_unshared", "descriptors.c", &["unshared"]),
    usual("the_lowest_descriptors_are_free", "descriptors.c", &["lowest"]),
    Probe {
        setting: Setting::RootWithStatic,
        ..usual("a_new_user_inherits_no_userfaultfd", "descriptors.c", &["inherited"])
    },
    Probe { setting: Setting::Core, ..usual("the_search_finds_a_key", "secret.c", &["key"]) },
    Probe { setting: Setting::Core, ..usual("no_key_is_in_a_core", "secret.c", &["none"]) },
];

/// How a probe did.
#[derive(Debug, Clone)]
pub struct Comparison {
    alone: Trial,
    managed: Trial,
    /// Keys in the core, and how many there should be.
    keys: Option<(usize, usize)>,
}

impl Comparison {
    /// The same output and the same end, and no key where none may be.
    pub fn is_right(&self) -> bool {
        self.managed.agrees(&self.alone) && self.keys.is_none_or(|(found, expected)| found == expected)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_right() {
            return write!(to, "right");
        }
        let shown = |trial: &Trial| {
            let text = String::from_utf8_lossy(&trial.output).trim_end().replace('\n', " | ");
            format!("{text} ({})", trial.end)
        };
        write!(to, "WRONG\n    alone:   {}\n    managed: {}", shown(&self.alone), shown(&self.managed))?;
        let message = self.managed.last_message();
        if !message.is_empty() {
            write!(to, "\n    said:    {message}")?;
        }
        if let Some((found, expected)) = self.keys {
            write!(to, "\n    keys in the core: {found}, expected {expected}")?;
        }
        Ok(())
    }
}

/// What came of trying a probe.
#[derive(Debug)]
pub enum Attempt {
    /// It ran twice.
    Ran(Box<Comparison>),
    /// It cannot run here, and why.
    Skipped(String),
}

/// Where the probes are compiled and run: a directory that every user may read.
pub struct Bench {
    directory: TempDir,
}

impl Bench {
    /// An empty one.
    ///
    /// # Errors
    /// No directory can be made.
    pub fn new() -> Result<Bench, ProofError> {
        let directory = tempfile::tempdir().map_err(ProofError::io("cannot make a temporary directory"))?;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).map_err(ProofError::io("cannot open a directory to all"))?;
        Ok(Bench { directory })
    }

    /// One with programs that [`compile_all`] has put into a directory: a machine without a compiler can run them.
    ///
    /// # Errors
    /// No directory can be made, or a program cannot be copied.
    pub fn of(compiled: &Path) -> Result<Bench, ProofError> {
        let bench = Bench::new()?;
        let cannot = || ProofError::io(format!("cannot copy the programs in {}", compiled.display()));
        for entry in std::fs::read_dir(compiled).map_err(cannot())? {
            let entry = entry.map_err(cannot())?;
            std::fs::copy(entry.path(), bench.directory.path().join(entry.file_name())).map_err(cannot())?;
        }
        Ok(bench)
    }

    /// Runs a probe alone and under the tool at `refault`, with these options after `run`.
    ///
    /// # Errors
    /// It cannot be compiled or started.
    pub fn run(&self, probe: &Probe, refault: &Path, options: &[String]) -> Result<Attempt, ProofError> {
        let root = rustix::process::geteuid().is_root();
        let needs_root = matches!(probe.setting, Setting::Root | Setting::RootWithStatic | Setting::Nobody);
        if needs_root && !root {
            return Ok(Attempt::Skipped("only root can try it".into()));
        }
        let program = compile(probe.source, self.directory.path())?;
        let mut arguments: Vec<String> = probe.arguments.iter().map(|&argument| argument.to_owned()).collect();
        if matches!(probe.setting, Setting::WithStatic | Setting::RootWithStatic) {
            match compile_static(probe.source, self.directory.path()) {
                Ok(path) => arguments.push(path.display().to_string()),
                Err(error) => return Ok(Attempt::Skipped(error.to_string())),
            }
        }
        if probe.setting == Setting::Core && !cores_lie_beside_their_program() {
            return Ok(Attempt::Skipped("cores do not lie in the program's directory here".into()));
        }
        let mut keys = None;
        let mut trials = Vec::new();
        for managed in [false, true] {
            let scratch = tempfile::tempdir_in(self.directory.path())
                .map_err(ProofError::io("cannot make a temporary directory"))?;
            let mut words: Vec<String> = Vec::new();
            if probe.setting == Setting::Nobody {
                words.extend(
                    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"].map(String::from),
                );
                words.extend(["--bounding-set=-all", "--inh-caps=-all", "--"].map(String::from));
                let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                std::fs::set_permissions(scratch.path(), everybody)
                    .map_err(ProofError::io("cannot open a directory to all"))?;
            }
            if managed {
                let tool =
                    if probe.setting == Setting::Nobody { self.readable_copy(refault)? } else { refault.to_owned() };
                words.push(tool.display().to_string());
                words.extend(["run", "--memory", MEMORY].map(String::from));
                words.extend(options.iter().cloned().chain(["--".to_owned()]));
            }
            words.push(program.display().to_string());
            words.extend(arguments.iter().cloned());
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).current_dir(scratch.path()).stdin(std::process::Stdio::null());
            trials.push(trial::run(&mut command, LIMIT, false)?);
            if managed && probe.setting == Setting::Core {
                let Some(core) = core_in(scratch.path())? else {
                    return Ok(Attempt::Skipped("no whole core was written".into()));
                };
                let expected = usize::from(probe.arguments == ["key"]);
                let found = core.iter().map(|extent| schedule::expanded_keys(extent).len()).sum();
                keys = Some((found, expected));
            }
        }
        let [alone, managed] = <[Trial; 2]>::try_from(trials).expect("invariant: one run per turn of the loop");
        Ok(Attempt::Ran(Box::new(Comparison { alone, managed, keys })))
    }

    /// The binary and its library where everybody may read them.
    fn readable_copy(&self, refault: &Path) -> Result<PathBuf, ProofError> {
        let to = self.directory.path().join("refault");
        if to.exists() {
            return Ok(to);
        }
        let beside = refault.parent().unwrap_or(Path::new("."));
        std::fs::copy(refault, &to).map_err(ProofError::io(format!("cannot copy {}", refault.display())))?;
        let library = "librefault_boundary.so";
        for candidate in
            [beside.join(library), beside.join("deps").join(library), beside.join("../lib/refault").join(library)]
        {
            if candidate.exists() {
                std::fs::copy(&candidate, self.directory.path().join(library))
                    .map_err(ProofError::io(format!("cannot copy {}", candidate.display())))?;
                break;
            }
        }
        Ok(to)
    }
}

/// What is written of the first core in a directory, if it is whole: cores have large holes.
fn core_in(directory: &Path) -> Result<Option<Vec<Vec<u8>>>, ProofError> {
    let listing = std::fs::read_dir(directory).map_err(ProofError::io(directory.display().to_string()))?;
    let Some(entry) = listing.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with("core")) else {
        return Ok(None);
    };
    let path = entry.path();
    let extents = File::open(&path).and_then(written).map_err(ProofError::io(path.display().to_string()))?;
    let marked = extents.iter().any(|extent| memchr::memmem::find(extent, MARK).is_some());
    Ok(marked.then_some(extents))
}

/// The parts of a file that are not holes.
fn written(file: File) -> std::io::Result<Vec<Vec<u8>>> {
    let mut extents = Vec::new();
    let mut end = 0;
    loop {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(end)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(extents),
            Err(error) => return Err(error.into()),
        };
        end = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start)?;
        extents.push(bytes);
    }
}

fn cores_lie_beside_their_program() -> bool {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    pattern.starts_with("core")
}

/// Compiles a program of `c/` into a directory, once.
///
/// # Errors
/// There is no compiler, or it refuses the program.
pub fn compile(source: &str, directory: &Path) -> Result<PathBuf, ProofError> {
    compile_with(source, directory, "", &[])
}

/// Compiles the programs of all probes into a directory, static builds too where the C library is there as an archive.
///
/// # Errors
/// The directory cannot be made, there is no compiler, or it refuses a program.
pub fn compile_all(directory: &Path) -> Result<(), ProofError> {
    std::fs::create_dir_all(directory).map_err(ProofError::io(format!("cannot make {}", directory.display())))?;
    for probe in &PROBES {
        compile(probe.source, directory)?;
        if matches!(probe.setting, Setting::WithStatic | Setting::RootWithStatic)
            && let Err(error) = compile_static(probe.source, directory)
        {
            eprintln!("refault-proof: left out: {error}");
        }
    }
    Ok(())
}

fn compile_static(source: &str, directory: &Path) -> Result<PathBuf, ProofError> {
    compile_with(source, directory, "_static", &["-static"])
}

fn compile_with(source: &str, directory: &Path, suffix: &str, flags: &[&str]) -> Result<PathBuf, ProofError> {
    let to = directory.join(format!("{}{suffix}", source.trim_end_matches(".c")));
    if to.exists() {
        return Ok(to);
    }
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(source);
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-w", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&to)
        .arg(&from)
        .output()
        .map_err(ProofError::io("cannot start cc, the C compiler"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ProofError::Compile { source_name: source.into(), message });
    }
    Ok(to)
}
