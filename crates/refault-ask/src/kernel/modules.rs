//! Which modules a kernel needs before it can read a disk and swap to compressed memory, and in which order.
//!
//! A package has no table of dependencies (that is made when it is installed): each module says itself which others it
//! needs, in a text `depends=a,b`.

use std::collections::{BTreeMap, BTreeSet};

/// What a guest needs, unless it is part of the image.
pub const NEEDED: [&str; 8] =
    ["virtio_pci", "virtio_blk", "isofs", "zram", "lzo_rle", "crc32c_generic", "crc32c_cryptoapi", FOR_PROGRAMS];
/// What a guest that runs a program needs, beside that.
pub const FOR_PROGRAMS: &str = "ext4";

/// The name that a module's file stands for: without the folder and endings, `-` as `_`.
pub fn name(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, _) = file.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

/// The modules that a module needs before it, as its file says.
pub fn depends(contents: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = contents.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let text = &contents[at + KEY.len()..];
    let text = &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())];
    let text = String::from_utf8_lossy(text);
    text.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// [`NEEDED`] and what they need, those that are needed first, of the modules that there are.
pub fn order(modules: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    for name in NEEDED {
        visit(name, modules, &mut order, &mut seen);
    }
    order
}

fn visit(name: &str, modules: &BTreeMap<String, Vec<u8>>, order: &mut Vec<String>, seen: &mut BTreeSet<String>) {
    let Some(contents) = modules.get(name) else { return };
    if !seen.insert(name.to_owned()) {
        return;
    }
    for other in depends(contents) {
        visit(&other, modules, order, seen);
    }
    order.push(name.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let module = |depends: &str| format!("\x7fELF\0name=x\0depends={depends}\0vermagic=6").into_bytes();
        let modules = BTreeMap::from([
            ("isofs".to_owned(), module("cdrom")),
            ("cdrom".to_owned(), module("")),
            ("zram".to_owned(), module("zsmalloc,lz4-compress")),
            ("zsmalloc".to_owned(), module("cdrom")),
            ("unneeded".to_owned(), module("zram")),
        ]);
        assert_eq!(order(&modules), ["cdrom", "isofs", "zsmalloc", "zram"]);
        assert_eq!(depends(&module("a,b-c")), ["a", "b_c"]);
        assert!(depends(b"no module").is_empty());
        assert_eq!(name("kernel/crypto/lzo-rle.ko.xz").as_deref(), Some("lzo_rle"));
        assert_eq!(name("kernel/modules.order"), None);
    }
}
