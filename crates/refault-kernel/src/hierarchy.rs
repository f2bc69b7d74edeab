//! The memory controller's tree of groups, and the place in it in which this process may make a group.

use std::path::{Path, PathBuf};

use crate::places::{self, Places};
use crate::refusal::Refusal;

/// Which files a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Version {
    /// `memory.limit_in_bytes`, `memory.oom_control`.
    One,
    /// `memory.high`, `memory.current`.
    Two,
}

/// A group below which groups with a limit of their own can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Which files its groups have.
    pub version: Version,
    /// Its directory.
    pub parent: PathBuf,
    /// In version 1: a group of the same place in a hierarchy that can pause its processes.
    pub freezer: Option<PathBuf>,
    /// It does not hand the controller on yet, because the tool is in it.
    pub has_tool: bool,
}

const CONTROLLER: &str = "memory";
/// Where the tool moves to, in a group that it is alone in.
const LEAF: &str = "refault-tool";

impl Hierarchy {
    /// The group around this process that may have groups below it. Of the processes in it `tool` may be moved.
    ///
    /// # Errors
    /// There is none, with the reason.
    pub fn find(places: &Places, tool: &[i32]) -> Result<Hierarchy, Refusal> {
        let mounts = places.read("/proc/mounts").unwrap_or_default();
        let own = places.read("/proc/self/cgroup").unwrap_or_default();
        let found = match mount(&mounts, "cgroup", Some(CONTROLLER)) {
            Some(mount) => Hierarchy {
                version: Version::One,
                parent: nearest(&places.at(mount), own_path(&own, CONTROLLER).unwrap_or("/")),
                freezer: freezer(places, &mounts, &own),
                has_tool: false,
            },
            None => {
                let mount = mount(&mounts, "cgroup2", None).ok_or(Refusal::NoController)?;
                let own = own_path(&own, "").unwrap_or("/");
                let (parent, has_tool) = parent_of_two(&places.at(mount), own, tool)?;
                Hierarchy { version: Version::Two, parent, freezer: None, has_tool }
            }
        };
        if may_write(&found.parent) { Ok(found) } else { Err(Refusal::NoPermission { place: found.parent }) }
    }

    /// Has the group hand the controller on to those below it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn prepare(&self, tool: &[i32]) -> Result<(), Refusal> {
        if self.version == Version::One || has(&self.parent, "cgroup.subtree_control") {
            return Ok(());
        }
        let failed = |error| Refusal::failed("the memory controller cannot be handed on", &self.parent, error);
        if self.has_tool {
            let leaf = self.parent.join(LEAF);
            std::fs::create_dir_all(&leaf).map_err(failed)?;
            tool.iter().try_for_each(|process| places::write(&leaf.join("cgroup.procs"), process)).map_err(failed)?;
        }
        let control = self.parent.join("cgroup.subtree_control");
        places::write(&control, format_args!("+{CONTROLLER}")).map_err(failed)
    }
}

/// Whether a file of a group's names the controller.
fn has(group: &Path, file: &str) -> bool {
    let words = std::fs::read_to_string(group.join(file)).unwrap_or_default();
    words.split_whitespace().any(|word| word == CONTROLLER)
}

fn may_write(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The group around this process whose groups can be paused: of version 2 beside version 1, or of its own controller.
fn freezer(places: &Places, mounts: &str, own: &str) -> Option<PathBuf> {
    let (unified, controller) = (mount(mounts, "cgroup2", None), mount(mounts, "cgroup", Some("freezer")));
    let unified = unified.map(|mount| nearest(&places.at(mount), own_path(own, "").unwrap_or("/")));
    let controller = controller.map(|mount| nearest(&places.at(mount), own_path(own, "freezer").unwrap_or("/")));
    unified.into_iter().chain(controller).find(|group| may_write(group))
}

/// Where a file system of this kind is mounted, with this option.
fn mount<'a>(mounts: &'a str, kind: &str, option: Option<&str>) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, its_kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = option.is_none_or(|option| options.split(',').any(|one| one == option));
        (its_kind == kind && fits).then_some(place)
    })
}

/// This process's group, by the line of `/proc/self/cgroup` with the controller.
fn own_path<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}

/// The group itself. In a container its path may be one of the host's, and what is mounted the group.
fn nearest(mount: &Path, path: &str) -> PathBuf {
    let own = mount.join(path.trim_start_matches('/'));
    if own.is_dir() { own } else { mount.to_owned() }
}

/// The nearest group that hands the controller on, or this process's own, if only the tool is in it. Whether the tool
/// has to leave it.
fn parent_of_two(mount: &Path, path: &str, tool: &[i32]) -> Result<(PathBuf, bool), Refusal> {
    let own = nearest(mount, path);
    if !has(mount, "cgroup.controllers") && !has(&own, "cgroup.controllers") {
        return Err(Refusal::NoController);
    }
    let mut around = own.ancestors().take_while(|group| group.starts_with(mount));
    if let Some(group) = around.find(|group| has(group, "cgroup.subtree_control") && may_write(group)) {
        return Ok((group.to_owned(), false));
    }
    // The root may have processes beside groups.
    if may_write(mount) && !mount.join("cgroup.type").exists() {
        return Ok((mount.to_owned(), false));
    }
    if !may_write(&own) || !has(&own, "cgroup.controllers") {
        return Err(Refusal::NoPermission { place: own });
    }
    let processes = std::fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
    if processes.lines().any(|process| !tool.iter().any(|own| own.to_string() == process)) {
        return Err(Refusal::Busy { place: own });
    }
    Ok((own, true))
}
