//! `refault run --pool NAME`: the budget is what the pool grants, as long as the program runs.
//!
//! This process, which waits for the program, is the member: it maps the segment in which the processes of the tree
//! count, reports from there and applies grants to it. It wakes when the pool says something, or when a process waits for
//! what the pool protects.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use refault_console::{Failure, say};
use refault_lab::size::{Bytes, bytes_text};
use refault_paging::{PAGE, Shared};
use refault_pool::shared::ledger::{Figures, MIN_GRANT};
use refault_pool::shared::member::{JoinError, Member};
use refault_pool::shared::place::Place;
use refault_pool::shared::protocol::Wishes;
use rustix::event::{EventfdFlags, eventfd};

use super::advice::Recent;
use super::observed::Observed;
use super::totals::Totals;
use super::{control, member_name, needs};
use crate::launch::Launch;

/// Looks at what the pool says.
const EVERY: Duration = Duration::from_millis(50);
/// Looks whether the program is below its grant, while others wait for that.
const OFTEN: Duration = Duration::from_millis(5);
/// Generations reported at most; older ones are kept, younger ones added up.
const MAX_GENERATIONS: usize = 32;
/// How long a program waits for its first grant if it does not say.
const WAIT: Duration = Duration::from_secs(10);
/// The same where it is to wait until what it needs is there.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The program's place in a pool.
#[derive(Args, Debug)]
pub(super) struct SeatArgs {
    /// Share the memory of this pool, which `refault pool` serves, instead of a budget of its own
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = ["memory", "runs", "slowdown", "resident", "memory_control"])]
    pub(super) pool: Option<String>,
    /// What the pool calls it [default: the program, or the script that it runs]
    #[arg(long, value_name = "NAME", requires = "pool", value_parser = member_name::given)]
    name: Option<String>,
    /// Bytes that the pool never takes from it [default: 4M]
    #[arg(long, value_name = "SIZE", requires = "pool")]
    min: Option<Bytes>,
    /// Bytes that the pool does not take from it while any member has unprotected memory
    #[arg(long, value_name = "SIZE", requires = "pool")]
    low: Option<Bytes>,
    /// Bytes that it never has more than [default: the pool]
    #[arg(long, value_name = "SIZE", requires = "pool")]
    max: Option<Bytes>,
    /// Twice the weight makes its memory count as half as old when it is compared with that of others [default: 100]
    #[arg(long, value_name = "N", requires = "pool", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    weight: Option<u32>,
    /// Begin only when this is free or granted and unused: a size, or the program's working set in a recording by
    /// `refault record`
    #[arg(long, value_name = "SIZE|TRACE", requires = "pool")]
    needs: Option<String>,
    /// How long to wait until the pool has room for it [default: 10s; with --needs for ever]
    #[arg(long, value_name = "TIME", requires = "pool", value_parser = crate::wss::time, allow_hyphen_values = true)]
    wait: Option<Duration>,
    /// Sample which pages it accesses, within 1 % of a processor. `refault serve` shows a heat map, and how often other
    /// policies would fault
    #[arg(long, requires = "pool", conflicts_with = "scheme")]
    observe: bool,
}

impl SeatArgs {
    /// Joins the pool, if one is named.
    ///
    /// # Errors
    /// There is no such pool, or no room in it.
    pub(super) fn join(&self, program: &[OsString], store: Option<&str>) -> Result<Option<Seat>, Failure> {
        let Some(pool) = &self.pool else { return Ok(None) };
        if store == Some("pool") {
            let remedy =
                "what does not compress would have nowhere to go when others need room; leave it out, or give file=DIR";
            return Err(Failure::usage("not possible in a pool", "--store pool", remedy));
        }
        let place = Place::new(pool).map_err(|why| Failure::usage("wrong usage", "--pool", why))?;
        let bytes = |size: Option<Bytes>| size.map(|Bytes(bytes)| bytes);
        let needs = self.needs.as_deref().map(needs::bytes).transpose()?;
        let (min, low, max) = (bytes(self.min), bytes(self.low), bytes(self.max));
        if let (Some(needs), Some(max)) = (needs, max)
            && needs > max
        {
            let remedy = format!("it needs {} to begin, and is never to have more than --max", bytes_text(needs));
            return Err(Failure::usage("not possible together", "--needs and --max", remedy));
        }
        let least = min.unwrap_or(MIN_GRANT).max(MIN_GRANT);
        if let Some(max) = max
            && max < least.max(low.unwrap_or(0))
        {
            let (option, bytes) = if max < least { ("--min", least) } else { ("--low", low.unwrap_or(0)) };
            let remedy = format!(
                "{} are to be left to it, but no more than {}: raise --max",
                bytes_text(bytes),
                bytes_text(max)
            );
            return Err(Failure::usage("not possible together", format!("{option} and --max"), remedy));
        }
        let wishes = Wishes { min, low, max, weight: self.weight, needs };
        let wait = self.wait.unwrap_or(if needs.is_some() { FOR_EVER } else { WAIT });
        let name = self.name.clone().unwrap_or_else(|| member_name::of(program));
        let program =
            Path::new(&program[0]).file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let member = Member::join_as(&place, &program, &name, wishes, wait).map_err(|error| match error {
            JoinError::Away(error) => {
                let remedy = format!("{error}; start it with refault pool --memory SIZE --name {pool}");
                Failure::failed("no such pool", place.socket().display(), remedy)
            }
            JoinError::Refused(why) => Failure::failed("cannot join the pool", pool, why),
            JoinError::Silent => {
                let remedy =
                    "it was stopped, or hangs: continue it, or end it and start it again; members keep what they have";
                Failure::failed("the pool's daemon does not answer", pool, remedy)
            }
            JoinError::Full => Failure::failed("the pool is full", pool, "give --wait more time, or end a member"),
        })?;
        if let Some(low) = low.filter(|low| (1..*low).contains(&member.protected())) {
            let most = bytes_text(member.protected());
            say(format_args!("--low {}: the pool protects no more than {most} of it", bytes_text(low)));
        }
        let joined = refault_linux::sys::now();
        let recent = Recent::default();
        let bell = Bell::new().map_err(|error| Failure::failed("cannot make", "an event descriptor", error))?;
        Ok(Some(Seat { member, bell, recent, joined, observes: self.observe, observed: None, shared: None }))
    }
}

/// Rung by another thread, so that this one wakes.
pub(super) struct Bell(OwnedFd);

impl Bell {
    fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// What is full has been rung.
    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// What was rung until now is attended to.
    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// A place in a pool.
pub struct Seat {
    member: Member,
    bell: Bell,
    recent: Recent,
    /// Monotonic clock in nanoseconds: nothing of the program is older.
    joined: u64,
    observes: bool,
    observed: Option<Observed>,
    /// What was looked at last.
    shared: Option<&'static Shared>,
}

impl Drop for Seat {
    /// What the program started may go on without it.
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            let figures = figures(shared, &mut self.recent, self.joined);
            self.member.part(figures);
        }
    }
}

impl Seat {
    /// Bytes to begin with.
    pub(super) fn grant(&self) -> u64 {
        self.member.grant()
    }

    /// What another thread rings when a process waits for what the pool protects.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(super) fn bell(&self) -> io::Result<Bell> {
        Ok(Bell(self.bell.0.try_clone()?))
    }

    /// What can be read when it is time to look.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.member.descriptor().into_iter().chain([self.bell.0.as_fd()]).collect()
    }

    /// How long to sleep at most.
    pub(super) fn tick(&self) -> Duration {
        if self.member.is_awaited() { OFTEN } else { EVERY }
    }

    /// Has the program's pages looked at, if that was asked for.
    ///
    /// # Errors
    /// A file cannot be had.
    pub(super) fn observe(&mut self, launch: &mut Launch, policy: &str) -> Result<(), Failure> {
        if self.observes {
            self.observed = Some(Observed::of(launch, policy, self.member.grant() / PAGE as u64)?);
        }
        Ok(())
    }

    /// Hears the pool, applies its grant and reports.
    pub(super) fn look(&mut self, shared: &'static Shared) {
        self.shared = Some(shared);
        let Seat { member, bell, recent, observed, joined, .. } = self;
        let figures = || {
            let mut figures = figures(shared, recent, *joined);
            if let Some(observed) = observed {
                observed.look(figures.resident / PAGE as u64);
                (figures.heat, figures.policies) = (observed.heat(), observed.policies());
            }
            figures
        };
        bell.silence();
        // While it asks, what processes say again changes nothing.
        if !member.is_pleading() {
            member.pleads_for(shared.take_plea());
        }
        let grant = member.tend(figures);
        if let Some(bytes) = grant {
            shared.set_limit(bytes);
        }
        if !member.is_pleading() {
            // Who still waits says so again.
            shared.take_plea();
        }
        shared.protect(member.pleads_below());
        control::make_room(shared);
    }
}

/// How the tree is now, which joined at that moment. A policy's first generation has no birth: it counts from there.
fn figures(shared: &Shared, recent: &mut Recent, joined: u64) -> Figures {
    let page = PAGE as u64;
    let totals = recent.look(&Totals::of(shared), shared.needed().counts());
    let mut figures = Figures {
        charge: shared.total.load(std::sync::atomic::Ordering::Relaxed).max(0) as u64 * page,
        peak: totals.peak_bytes,
        faults: totals.faults,
        refaults: totals.refaults,
        waited: shared.statistics().waited_again,
        waited_in_all: (totals.waited_seconds * 1e9) as u64,
        fault_p50: totals.fault_p50_ns,
        fault_p99: totals.fault_p99_ns,
        would_stop_refaulting_at: totals.would_stop_refaulting_at_bytes,
        ..Figures::default()
    };
    for (slot, published) in shared.living() {
        let usage = published.usage.load();
        figures.processes.push(slot.process.load(std::sync::atomic::Ordering::Relaxed));
        figures.resident += (usage.resident_pages + usage.parked_pages) * page;
        figures.compressed += usage.pool_bytes;
        figures.stored += (usage.same_filled_pages + usage.pool_pages + usage.file_pages) * page;
        figures.generations.extend(published.generations().map(|[_, birth, pages]| [birth.max(joined), pages * page]));
    }
    figures.generations.sort_unstable();
    if let Some(young) = figures.generations.get(MAX_GENERATIONS..) {
        let bytes: u64 = young.iter().map(|[_, bytes]| bytes).sum();
        figures.generations.truncate(MAX_GENERATIONS);
        figures.generations[MAX_GENERATIONS - 1][1] += bytes;
    }
    figures
}
