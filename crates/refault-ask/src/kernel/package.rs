//! What is in a Debian package: an archive of `ar` with a compressed archive of `tar`.

use std::io::Read;

use refault_lab::LabError;

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;
const NAME: std::ops::Range<usize> = 0..16;
const SIZE: std::ops::Range<usize> = 48..58;

/// Hands each regular file of a package to `wanted`, by its path without a leading `./`; what it returns `true` for is
/// read and given to `take`.
///
/// # Errors
/// It is not a package, or cut off.
pub fn files(
    package: &[u8],
    place: &str,
    wanted: &dyn Fn(&str) -> bool,
    take: &mut dyn FnMut(String, Vec<u8>) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let broken = |why: &dyn std::fmt::Display| {
        LabError::failed(format!("not a whole Debian package: {why}"), place, "download it again")
    };
    let (name, data) = members(package)
        .and_then(|members| members.into_iter().find(|(name, _)| name.starts_with("data.tar")))
        .ok_or_else(|| broken(&"it has no data"))?;
    let unpacked: Box<dyn Read> = match name.rsplit('.').next() {
        Some("xz") => Box::new(lzma_rust2::XzReader::new(data, true)),
        Some("zst") => Box::new(zstd::Decoder::new(data).map_err(|error| broken(&error))?),
        Some("tar") => Box::new(data),
        _ => return Err(broken(&format_args!("{name} is packed in a way that refault does not know"))),
    };
    let mut archive = tar::Archive::new(unpacked);
    for entry in archive.entries().map_err(|error| broken(&error))? {
        let mut entry = entry.map_err(|error| broken(&error))?;
        let path = entry.path().map_err(|error| broken(&error))?;
        let path = path.to_string_lossy().trim_start_matches("./").trim_start_matches('/').to_owned();
        if entry.header().entry_type().is_file() && wanted(&path) {
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).map_err(|error| broken(&error))?;
            take(path, contents)?;
        }
    }
    Ok(())
}

/// Names and contents of an `ar` archive.
fn members(bytes: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let mut found = Vec::new();
    while rest.len() >= HEADER {
        let (header, contents) = rest.split_at(HEADER);
        let text = |range: std::ops::Range<usize>| std::str::from_utf8(&header[range]).ok().map(str::trim);
        let size: usize = text(SIZE)?.parse().ok()?;
        let name = text(NAME)?.trim_end_matches('/').to_owned();
        found.push((name, contents.get(..size)?));
        rest = contents.get(size.next_multiple_of(2)..).unwrap_or_default();
    }
    Some(found)
}

/// Contents as they are, or unpacked if they are packed by xz, zstd or not at all.
///
/// # Errors
/// They are cut off or damaged.
pub fn unpacked(contents: Vec<u8>, path: &str) -> Result<Vec<u8>, LabError> {
    let mut plain = Vec::new();
    let read = match path.rsplit('.').next() {
        Some("xz") => lzma_rust2::XzReader::new(&contents[..], true).read_to_end(&mut plain),
        Some("zst") => zstd::stream::copy_decode(&contents[..], &mut plain).map(|()| 0),
        _ => return Ok(contents),
    };
    read.map_err(|error| LabError::failed(format!("damaged module: {error}"), path, "download the package again"))?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package with these files, packed by zstd.
    pub(crate) fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, contents) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, format!("./{path}"), *contents).expect("in memory");
        }
        let data = zstd::encode_all(&tar.into_inner().expect("in memory")[..], 1).expect("in memory");
        let mut bytes = MAGIC.to_vec();
        for (name, contents) in [("debian-binary", &b"2.0\n"[..]), ("data.tar.zst", &data)] {
            bytes.extend_from_slice(
                format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 0, contents.len()).as_bytes(),
            );
            bytes.extend_from_slice(contents);
            bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        }
        bytes
    }

    fn paths(package: &[u8]) -> Result<Vec<String>, LabError> {
        let mut found = Vec::new();
        files(package, "x.deb", &|path| path.ends_with(".ko"), &mut |path, contents| {
            found.push(format!("{path} {}", contents.len()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn files_are_found_and_damage_is_said() {
        let whole = package(&[("boot/vmlinuz-1", b"image"), ("lib/a.ko", b"abc")]);
        assert_eq!(paths(&whole).expect("whole"), ["lib/a.ko 3"]);
        for broken in [&whole[..whole.len() - 9], b"no package", &whole[..80]] {
            let said = paths(broken).expect_err("broken").to_string();
            assert!(said.contains("not a whole Debian package") && said.contains("x.deb"), "{said}");
        }
    }
}
