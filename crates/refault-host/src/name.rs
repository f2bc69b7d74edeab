//! What a group is, by its path: a unit of systemd, a container, a pod.
//!
//! systemd writes `\x2d` for `-` in names of units. Docker, containerd, CRI-O and Podman put a container's identifier
//! of 64 hexadecimal digits into the last part of the path. The kubelet puts the pod's identifier into the part above.
//!
//! ```
//! use refault_host::name::{Kind, of_path};
//!
//! let name = of_path("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c_3d.slice");
//! assert_eq!((name.kind, name.pod.as_deref()), (Kind::Pod, Some("1b2c-3d")));
//! assert_eq!(of_path("/system.slice/cron.service").text, "cron.service");
//! ```

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Serialize;

use crate::text::printable;

/// Characters of a container's identifier that people write.
const SHORT_ID: usize = 12;
/// All characters of it.
const ID: usize = 64;
/// The longest that a name of a host is read.
const MAX_HOSTNAME: u64 = 253;

/// What a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The root: the whole host.
    Host,
    /// A service, slice or scope of systemd.
    Unit,
    /// A container.
    Container,
    /// A pod of Kubernetes.
    Pod,
    /// Any other group.
    Group,
}

/// A group's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Name {
    /// What it is.
    pub kind: Kind,
    /// As people call it.
    pub text: String,
    /// The identifier of the pod that it is, or belongs to.
    pub pod: Option<String>,
}

/// The name of a group, by its path below the root of the hierarchy.
pub fn of_path(path: &str) -> Name {
    let mut parts = path.rsplit('/').filter(|part| !part.is_empty());
    let Some(last) = parts.next() else { return Name { kind: Kind::Host, text: "host".into(), pod: None } };
    if let Some(id) = pod(last) {
        return Name { kind: Kind::Pod, text: format!("pod {}", shown(&id)), pod: Some(id) };
    }
    let pod = parts.find_map(pod);
    if let Some(id) = container(last) {
        return Name { kind: Kind::Container, text: id, pod };
    }
    let is_unit = [".service", ".slice", ".scope", ".mount", ".socket", ".swap"].iter().any(|end| last.ends_with(end));
    let kind = if is_unit { Kind::Unit } else { Kind::Group };
    Name { kind, text: if is_unit { unescaped(last) } else { last.to_owned() }, pod }
}

/// The name of a container's own host, which is what its orchestrator calls it: that of the first process, if it has
/// another than this host.
pub fn hostname(processes: &[u32]) -> Option<String> {
    let ours = fs::read("/etc/hostname").unwrap_or_default();
    let theirs = hostname_below(Path::new(&format!("/proc/{}/root", processes.first()?)))?;
    (theirs != printable(ours.trim_ascii())).then_some(theirs)
}

/// What `/etc/hostname` holds below a directory. A container writes what it likes there: links lead to what is below the
/// directory, a pipe is not waited for, and no more is read than a name is long.
fn hostname_below(root: &Path) -> Option<String> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(&root, "etc/hostname", flags, Mode::empty(), within).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut name = Vec::new();
    file.take(MAX_HOSTNAME + 2).read_to_end(&mut name).ok()?;
    let name = name.trim_ascii();
    let is_name = !name.is_empty() && name.len() as u64 <= MAX_HOSTNAME;
    is_name.then(|| printable(name))
}

/// The name of a process as the kernel keeps it; nothing if it has ended.
pub fn program(pid: u32) -> Option<String> {
    Some(printable(fs::read(format!("/proc/{pid}/comm")).ok()?.trim_ascii_end()))
}

/// The identifier of a pod: `pod1b2c-3d`, `kubepods-besteffort-pod1b2c_3d.slice`.
fn pod(part: &str) -> Option<String> {
    let id = match part.strip_suffix(".slice") {
        Some(slice) => slice.strip_prefix("kubepods")?.rsplit_once("-pod")?.1.replace('_', "-"),
        None => part.strip_prefix("pod")?.to_owned(),
    };
    let is_id = id.len() >= 6 && id.chars().all(|character| character.is_ascii_hexdigit() || character == '-');
    is_id.then_some(id)
}

/// The short identifier of a container: `docker-IDENTIFIER.scope`, the identifier alone, `lxc.payload.NAME`.
fn container(part: &str) -> Option<String> {
    if let Some(name) = part.strip_prefix("lxc.payload.").or_else(|| part.strip_prefix("machine-")) {
        return Some(unescaped(name.trim_end_matches(".scope")));
    }
    let id = part.strip_suffix(".scope").unwrap_or(part);
    let id = id.rsplit_once(['-', ':']).map_or(id, |(_, id)| id);
    let is_id = id.len() == ID && id.chars().all(|character| character.is_ascii_hexdigit());
    is_id.then(|| shown(id))
}

fn shown(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

/// A name of systemd's without its escapes `\xNN`.
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("\\x") {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        match rest.get(at + 2..at + 4).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[at + 4..];
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = &rest[at + 2..];
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    printable(&bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    /// A container's own root may hold anything: of what is no short file nothing is taken, and nothing is waited for.
    #[test]
    fn what_a_container_calls_its_host_is_a_short_file_of_its_own() {
        let place = tempfile::tempdir().expect("a directory");
        let (root, file) = (place.path().join("root"), place.path().join("root/etc/hostname"));
        fs::create_dir_all(root.join("etc")).expect("room");
        let below = || {
            let (told, tells) = std::sync::mpsc::channel();
            let root = root.clone();
            std::thread::spawn(move || told.send(hostname_below(&root)));
            tells.recv_timeout(Duration::from_secs(60)).expect("nothing is waited for")
        };
        let put = |make: &dyn Fn()| {
            let _ = fs::remove_file(&file);
            make();
            below()
        };
        assert_eq!(put(&|| fs::write(&file, " web-7\n").expect("room")).as_deref(), Some("web-7"));
        assert_eq!(put(&|| fs::write(&file, "a\nb\x1b").expect("room")).as_deref(), Some("a\\nb\\u{1b}"));
        let longest = "x".repeat(MAX_HOSTNAME as usize);
        assert_eq!(put(&|| fs::write(&file, format!("{longest}\n")).expect("room")), Some(longest.clone()));
        assert_eq!(put(&|| fs::write(&file, format!("{longest}x\n")).expect("room")), None);
        assert_eq!(put(&|| fs::write(&file, vec![b'x'; 1 << 20]).expect("room")), None);
        let pipe = || rustix::fs::mkfifoat(rustix::fs::CWD, &file, Mode::RUSR).expect("room");
        assert_eq!(put(&pipe), None);
        // Links are followed as the container would: what is outside is not read.
        fs::write(place.path().join("secret"), "of-the-host").expect("room");
        assert_eq!(put(&|| symlink(place.path().join("secret"), &file).expect("room")), None);
        assert_eq!(put(&|| symlink("../../secret", &file).expect("room")), None);
        assert_eq!(put(&|| symlink("/dev/zero", &file).expect("room")), None);
        fs::write(root.join("name"), "inside").expect("room");
        assert_eq!(put(&|| symlink("/name", &file).expect("room")).as_deref(), Some("inside"));
    }

    #[test]
    fn units_containers_and_pods_are_told_by_their_paths() {
        let id = "4f".repeat(32);
        let short = &id[..12];
        for (path, kind, text, pod) in [
            ("/".to_owned(), Kind::Host, "host", None),
            ("/system.slice/dev-disk\\x2dby.swap".to_owned(), Kind::Unit, "dev-disk-by.swap", None),
            ("/system.slice/a\\x0ab.service".to_owned(), Kind::Unit, "a\\nb.service", None),
            ("/system.slice/a\\xzz.service".to_owned(), Kind::Unit, "a\\xzz.service", None),
            ("/system.slice/a\\xé.service".to_owned(), Kind::Unit, "a\\xé.service", None),
            ("/user.slice/session-3.scope".to_owned(), Kind::Unit, "session-3.scope", None),
            (format!("/docker/{id}"), Kind::Container, short, None),
            (format!("/system.slice/docker-{id}.scope"), Kind::Container, short, None),
            (format!("/machine.slice/libpod-{id}.scope"), Kind::Container, short, None),
            (format!("/kubepods/burstable/pod1b2c-3d4e/{id}"), Kind::Container, short, Some("1b2c-3d4e")),
            (
                format!("/kubepods.slice/kubepods-pod1b2c_3d4e.slice/cri-containerd-{id}.scope"),
                Kind::Container,
                short,
                Some("1b2c-3d4e"),
            ),
            (
                format!("/system.slice/x.service/kubepods-pod1b2c_3d4e.slice:cri-containerd:{id}"),
                Kind::Container,
                short,
                None,
            ),
            ("/lxc.payload.web".to_owned(), Kind::Container, "web", None),
            ("/podcast".to_owned(), Kind::Group, "podcast", None),
            ("/docker/4f4f".to_owned(), Kind::Group, "4f4f", None),
        ] {
            let name = of_path(&path);
            assert_eq!((name.kind, name.text.as_str(), name.pod.as_deref()), (kind, text, pod), "{path}");
        }
    }
}
