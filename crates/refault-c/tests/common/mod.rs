//! What the tests of the C library share.

use std::path::PathBuf;

/// The archive that this build made: beside the test, or one directory above.
pub fn archive() -> PathBuf {
    let deps = std::env::current_exe().expect("a path").parent().expect("a directory").to_owned();
    let directories = [deps.clone(), deps.parent().expect("a directory").to_owned()];
    let files = directories.iter().flat_map(|directory| std::fs::read_dir(directory).expect("reads")).flatten();
    let ours = files.filter(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("librefault_c") && name.ends_with(".a")
    });
    let newest = ours.max_by_key(|file| file.metadata().and_then(|metadata| metadata.modified()).expect("a time"));
    newest.expect("cargo has built librefault_c.a").path()
}
