//! Keeps a group to its budget, from the making of group and device to their removal.

mod contents;
mod share;
mod traffic;

use std::io;
use std::time::{Duration, Instant};

use crate::border::{Border, Found, MAX_SLACK, Sides};
use crate::device::Device;
use crate::group::Group;
use crate::hierarchy::{Hierarchy, Version};
use crate::journal::{self, Journal};
use crate::places::{Places, value};
use crate::refusal::Refusal;
use crate::sample::Sample;
use share::{Swapped, share};
use traffic::{Own, Traffic};

/// Between two looks, at least and at most.
const SOON: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_millis(20);
/// The same while nothing can be done.
const STUCK: Duration = Duration::from_millis(300);
/// Between two looks at other keepers, at the tool's own memory, and at the device's free space.
const SELDOM: Duration = Duration::from_millis(200);
/// Threads that have waited for room this long wait for good.
const FULL_AFTER: Duration = Duration::from_secs(2);
/// Times the budget that fits on a device before compression, as long as that is not more than [`PLENTY`] bytes or the
/// budget itself: the kernel keeps a table entry for each page that fits.
const DEVICE: u64 = 4;
const PLENTY: u64 = 1 << 30;
/// A device on which less than this part is free is not the last.
const NEARLY_FULL: u64 = 4;
/// Fewer bytes of pages on devices say little of what a page takes.
const MIN_MEASURED: u64 = 1 << 20;
/// Looks at pages in memory that the newest counts as much as.
const MAX_ESTIMATES: u64 = 8;
/// Others are told when what a page takes has changed by more than this part.
const TOLD_AFTER: u32 = 16;
/// The least that a program can have.
const MIN_TOTAL: u64 = 1 << 20;

/// What is to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes that the group may use, compressed memory included.
    pub budget: u64,
    /// The process whose memory counts, besides this one's: the tool.
    pub tool: i32,
}

/// See the module.
#[derive(Debug)]
pub struct Keeper {
    places: Places,
    plan: Plan,
    journal: Journal,
    border: Border,
    held: Held,
    pause: Duration,
    looked: Instant,
    stuck_since: Option<Instant>,
    last: Sample,
    /// Bytes that were placed on devices when it was last measured what a page takes there.
    measured_at: u64,
    /// Looks at pages in memory, because other keepers were there before anything could be measured.
    estimates: u64,
    /// When it was last seen what the threads did, and how long all of them have been asleep.
    seen: Instant,
    asleep: Duration,
    traffic: Traffic,
}

/// Group and devices, as the border sees them.
#[derive(Debug)]
struct Held {
    group: Group,
    devices: Vec<Device>,
    others: Others,
    /// What a page of this group takes compressed, in bytes, as measured while no other keeper was there.
    stored_per_page: Option<u32>,
}

/// Other keepers' groups and devices. Swap is the machine's: their pages are on this one's devices too, and this group's
/// on theirs.
#[derive(Debug, Default)]
struct Others {
    /// With what a page of theirs takes compressed, where their keeper has measured it.
    groups: Vec<(Group, Option<u32>)>,
    devices: Vec<Device>,
    /// Room for what they write to a device of this keeper between two looks.
    room: u64,
}

impl Keeper {
    /// Makes group and device. What earlier keepers left is removed first.
    ///
    /// # Errors
    /// What this machine or this user lacks; nothing is left then.
    pub fn begin(places: Places, plan: Plan) -> Result<Keeper, Refusal> {
        journal::clean(&places);
        let tool = [std::process::id() as i32, plan.tool];
        let hierarchy = Hierarchy::find(&places, &tool)?;
        let has_zram = check_swap(&places)?;
        hierarchy.prepare(&tool)?;
        let directory = journal::directory(&places);
        let failed = |error| Refusal::failed("cannot write what is to be removed", &directory, error);
        let mut journal = Journal::begin(&places).map_err(failed)?;
        let group = Group::named(&hierarchy, &format!("refault-{}", journal.name()));
        (journal.entry.group, journal.entry.budget) = (Some(group.clone()), plan.budget);
        journal.write().map_err(failed)?;
        let held = Held { group, devices: Vec::new(), others: Others::of(&places), stored_per_page: None };
        let now = Instant::now();
        let mut keeper = Keeper {
            places,
            plan,
            journal,
            border: Border::new(MIN_TOTAL),
            held,
            pause: SOON,
            looked: now,
            stuck_since: None,
            last: Sample::default(),
            measured_at: 0,
            estimates: 0,
            seen: now,
            asleep: Duration::ZERO,
            traffic: Traffic::default(),
        };
        match keeper.make(has_zram) {
            Ok(()) => Ok(keeper),
            Err(refusal) => {
                let _ = keeper.end();
                Err(refusal)
            }
        }
    }

    fn make(&mut self, has_zram: bool) -> Result<(), Refusal> {
        let place = self.held.group.path().to_owned();
        let above = place.parent().unwrap_or(&place).to_owned();
        self.held.group.make().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Refusal::NoPermission { place: above }
            }
            _ => Refusal::failed("cannot make a cgroup", &place, error),
        })?;
        self.last.own_bytes = self.own_bytes();
        if has_zram {
            self.add_device()?;
        }
        self.border = Border::new(self.total());
        let failed = |error| Refusal::failed("cannot limit a cgroup", &place, error);
        self.held.group.set_limit(self.limit()).map_err(failed)?;
        if !self.held.devices.is_empty() {
            self.held.set_room(self.border.room()).map_err(failed)?;
        }
        Ok(())
    }

    /// The limit of a group that nothing else takes from is the total.
    fn limit(&self) -> u64 {
        if self.held.devices.is_empty() { self.total() } else { self.border.limit() }
    }

    fn add_device(&mut self) -> Result<(), Refusal> {
        let (place, _) = Device::source(&self.places);
        let failed = |error| Refusal::failed("cannot swap to a zram device", &place, error);
        let mut device = Device::add(&self.places).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Refusal::NoZramPermission { place: place.clone() },
            _ => failed(error),
        })?;
        self.journal.entry.devices.push(device.number());
        self.journal.write().map_err(failed)?;
        let budget = self.plan.budget;
        let bytes =
            budget.saturating_mul(DEVICE).min(budget.max(PLENTY)).min(self.places.memory_bytes().saturating_mul(2));
        let made = device.swap_on(bytes, crate::PAGE);
        self.held.devices.push(device);
        self.last.own_bytes = self.own_bytes();
        made.map_err(failed)
    }

    /// Memory of the tool and of this process, and the devices' tables.
    fn own_bytes(&self) -> u64 {
        let anonymous = |process: i32| {
            let text = self.places.read(format!("/proc/{process}/status")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
            let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
            kilobytes.unwrap_or(0) << 10
        };
        let tables: u64 = self.held.devices.iter().map(|device| Device::table_bytes(device.bytes())).sum();
        anonymous(std::process::id() as i32) + anonymous(self.plan.tool) + tables
    }

    /// What the program may have of the budget.
    fn total(&self) -> u64 {
        self.plan.budget.saturating_sub(self.last.own_bytes).max(MIN_TOTAL)
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.held.group
    }

    /// Where swapped pages go, in words.
    pub fn swap(&self) -> String {
        let names: Vec<String> = self.held.devices.iter().map(|device| format!("zram{}", device.number())).collect();
        if names.is_empty() { "swap of the machine".to_owned() } else { names.join(", ") }
    }

    /// Changes the budget.
    pub fn set_budget(&mut self, bytes: u64) {
        (self.plan.budget, self.journal.entry.budget) = (bytes, bytes);
        let _ = self.journal.write();
        self.follow();
    }

    fn follow(&mut self) {
        self.border.set_total(self.total());
        if self.held.devices.is_empty() {
            let _ = self.held.group.set_limit(self.total());
        }
    }

    /// Looks, and moves the border; answers when to look again.
    ///
    /// # Errors
    /// The group or the device is gone.
    pub fn look(&mut self) -> io::Result<Duration> {
        if self.looked.elapsed() >= SELDOM {
            self.looked = Instant::now();
            self.last.own_bytes = self.own_bytes();
            self.follow();
            let was_alone = self.held.others.groups.is_empty();
            self.held.others = Others::of(&self.places);
            match (was_alone, self.held.others.groups.is_empty()) {
                (true, true) => self.measure(),
                (_, false) if self.measured_at == 0 => self.estimate(),
                _ => {}
            }
            self.extend();
        } else if self.is_to_be_measured() {
            // Once others are there it cannot be any more: one of them may come before the next of those looks.
            self.held.others = Others::of(&self.places);
            if self.held.others.groups.is_empty() {
                self.measure();
            }
        }
        let found = if self.held.devices.is_empty() { Found::Calm } else { self.border.look(&mut self.held)? };
        self.pause = match found {
            Found::Calm => (self.pause * 2).min(LATE),
            Found::Moved => SOON,
            // Each look tries all pages, which are paused.
            Found::Stuck => (self.pause * 2).min(STUCK),
        };
        let waits = found == Found::Stuck || self.held.group.is_paused();
        self.stuck_since = if waits { self.stuck_since.or_else(|| Some(Instant::now())) } else { None };
        self.take_sample()?;
        Ok(self.pause)
    }

    /// Whether twice as much is swapped as when this was last measured: it would be measured better now.
    fn is_to_be_measured(&self) -> bool {
        self.held.others.groups.is_empty() && self.last.swapped_bytes >= MIN_MEASURED.max(2 * self.measured_at)
    }

    /// Measures what a page takes compressed, and tells other keepers when that has changed.
    fn measure(&mut self) {
        // A page that was read back and not written to since lies on the device still.
        let (Ok(used), placed) = (self.held.compressed(), self.held.group.placed()) else { return };
        if placed < MIN_MEASURED {
            return;
        }
        self.measured_at = placed;
        self.tell((used / (placed / crate::PAGE)).min(crate::PAGE) as u32);
    }

    /// The same by pages in memory: what devices take is not this group's alone, and was not measured before.
    fn estimate(&mut self) {
        self.estimates += 1;
        if self.estimates > MAX_ESTIMATES && !self.estimates.is_multiple_of(MAX_ESTIMATES) {
            return;
        }
        let found = contents::stored_per_page(&self.places, &self.held.group.processes(), self.estimates);
        if let Some(each) = found {
            // The mean of many looks at a few pages each.
            let weight = self.estimates.min(MAX_ESTIMATES) as u32;
            let before = self.held.stored_per_page.unwrap_or(each);
            self.tell((before * (weight - 1) + each) / weight);
        }
    }

    /// Takes up what a page takes.
    fn tell(&mut self, each: u32) {
        let before = self.held.stored_per_page.replace(each);
        if before.is_none_or(|before| before.abs_diff(each) > before / TOLD_AFTER) {
            self.journal.entry.stored_per_page = Some(each);
            let _ = self.journal.write();
        }
    }

    /// Adds a device when the last is nearly full of slots: what is on it may take hardly any memory.
    fn extend(&mut self) {
        let Some(last) = self.held.devices.last() else { return };
        let fits: u64 = self.held.devices.iter().map(Device::bytes).sum();
        let placed = self.held.group.placed();
        if fits - placed.min(fits) < last.bytes() / NEARLY_FULL {
            // Without it the program is paused for want of room, which is told.
            let _ = self.add_device();
            self.follow();
        }
    }

    fn take_sample(&mut self) -> io::Result<()> {
        let mut sample = Sample {
            budget_bytes: self.plan.budget,
            resident_bytes: self.held.resident()?,
            compressed_bytes: self.held.compressed()?,
            swapped_bytes: self.held.group.swapped(),
            own_bytes: self.last.own_bytes,
            is_full: self.stuck_since.is_some_and(|since| since.elapsed() >= FULL_AFTER),
            ..Sample::default()
        };
        sample.keep_peaks(&self.last);
        self.last = sample;
        Ok(())
    }

    /// The last look's figures, with counts.
    pub fn sample(&mut self) -> Sample {
        let before = std::mem::replace(&mut self.seen, Instant::now());
        if self.held.group.processes().iter().all(|process| self.places.is_asleep(*process)) {
            self.asleep += self.seen - before;
        }
        let group = &self.held.group;
        let processes = group.processes();
        let counts = group.counts();
        let devices = self.held.devices.iter().map(Device::transfers).reduce(|sum, more| sum.plus(more));
        let own = Own { major_faults: counts.major_faults, swapped: self.last.swapped_bytes / crate::PAGE };
        let is_alone = self.held.others.groups.is_empty();
        let transfers = devices.map(|devices| self.traffic.look(devices, own, is_alone));
        // Of swap that others have too only version 2 knows what is the group's.
        let counted = |key| {
            let text = std::fs::read_to_string(group.path().join("memory.stat")).unwrap_or_default();
            value(&text, key)
        };
        Sample {
            faults: counts.faults,
            stored: transfers.map(|all| all.written).or_else(|| counted("pswpout")),
            refaults: transfers.map(|all| all.read).or_else(|| counted("pswpin")),
            waited_ns: group.waited_ns(),
            user_ns: processes.iter().map(|process| self.places.user_ns(*process)).sum(),
            asleep_ns: self.asleep.as_nanos() as u64,
            processes: processes.len() as u64,
            kills: group.kills(),
            ..self.last.clone()
        }
    }

    /// Removes group and devices.
    ///
    /// # Errors
    /// Something cannot be removed: this keeper, or the next, tries again.
    pub fn end(&mut self) -> io::Result<()> {
        self.journal.end(&self.places)
    }
}

/// What a keeper of this process's would have, in words; nothing is made.
///
/// # Errors
/// What this machine or this user lacks.
pub fn examine(places: &Places) -> Result<String, Refusal> {
    let hierarchy = Hierarchy::find(places, &[std::process::id() as i32])?;
    let version = if hierarchy.version == Version::One { 1 } else { 2 };
    let swap = if check_swap(places)? { "zram of its own" } else { "swap of the machine" };
    Ok(format!("a cgroup of version {version} in {}, {swap}", hierarchy.parent.display()))
}

/// Whether this process can make zram devices.
fn check_swap(places: &Places) -> Result<bool, Refusal> {
    let (place, is_there) = Device::source(places);
    let may = is_there && rustix::fs::access(&place, rustix::fs::Access::READ_OK).is_ok();
    match (may, is_there) {
        (true, _) => Ok(true),
        _ if places.has_swap() => Ok(false),
        (_, true) => Err(Refusal::NoZramPermission { place }),
        (_, false) => Err(Refusal::NoZram),
    }
}

impl Sides for Held {
    fn set_limit(&mut self, bytes: u64) -> io::Result<()> {
        self.group.set_limit(bytes)
    }

    fn set_room(&mut self, bytes: u64) -> io::Result<()> {
        // Looked at once: what is written meanwhile comes out of the slack.
        let used: Vec<u64> = self.devices.iter().map(Device::used).collect::<io::Result<_>>()?;
        let slack = bytes.saturating_sub(self.share(used.iter().sum()));
        // What one device has left, each has.
        let each = slack / self.devices.len().max(1) as u64 + self.others.room;
        self.devices.iter().zip(used).try_for_each(|(device, used)| device.set_room(used + each))
    }

    fn resident(&self) -> io::Result<u64> {
        self.group.usage()
    }

    fn compressed(&self) -> io::Result<u64> {
        let used = self.devices.iter().map(Device::used).sum::<io::Result<u64>>()?;
        Ok(self.share(used))
    }

    fn pause(&mut self, is_paused: bool) {
        self.group.pause(is_paused);
    }
}

impl Others {
    fn of(places: &Places) -> Others {
        let entries = journal::others(places);
        let devices = entries.iter().flat_map(|entry| &entry.devices);
        Others {
            devices: devices.map(|number| Device::numbered(places, *number, 0)).collect(),
            room: entries.iter().map(|entry| entry.budget / MAX_SLACK).sum(),
            groups: entries.into_iter().filter_map(|entry| Some((entry.group?, entry.stored_per_page))).collect(),
        }
    }
}

impl Held {
    /// What counts for the group, of what its own keeper's devices and all others use.
    fn share(&self, used: u64) -> u64 {
        if self.others.groups.is_empty() {
            return used;
        }
        let own = Swapped { bytes: self.group.swapped(), stored_per_page: self.stored_per_page };
        let theirs = |(group, stored_per_page): &(Group, Option<u32>)| Swapped {
            bytes: group.swapped(),
            stored_per_page: *stored_per_page,
        };
        let others: Vec<Swapped> = self.others.groups.iter().map(theirs).collect();
        let elsewhere: u64 = self.others.devices.iter().filter_map(|device| device.used().ok()).sum();
        share(used + elsewhere, own, &others)
    }
}
