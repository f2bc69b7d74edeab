//! Shared libraries of other crates of the same build, put into a program.
//!
//! Cargo has no stable way to name the `cdylib` of a dependency. But a program is compiled when all its dependencies
//! are whole, and the compiler is told where their `rlib`s lie; the shared library of a crate that is both lies beside
//! it. The macro reads those arguments, packs the libraries by zstd and leaves them as bytes in the program. It leaves
//! nothing where nothing is linked (`cargo check`, clippy, documentation), or the arguments are not in sight. The
//! program then has to find the libraries elsewhere.
//!
//! Cost: reading and packing a few MiB per compilation of the program.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use proc_macro::TokenStream;

/// Of zstd's 19, the best: the library is packed once and downloaded with each copy of the program.
const LEVEL: i32 = 19;

/// `libraries!(refault_boundary, …)`: a `&[(&str, &[u8])]` of the file name of each crate's shared library and its
/// bytes, packed as a frame of zstd. Those that are not there are left out.
#[proc_macro]
pub fn libraries(crates: TokenStream) -> TokenStream {
    let arguments: Vec<String> = std::env::args().collect();
    let crates = crates.to_string();
    let names = crates.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut entries = String::new();
    for name in names {
        let Some(path) = rlib(&arguments, name).and_then(|rlib| beside(&rlib, name)) else { continue };
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(packed) = zstd::encode_all(&bytes[..], LEVEL) else { continue };
        // The constant makes the compiler watch the file; it is not part of the program.
        entries.push_str(&format!(
            "({:?}, {{ const _: &[u8] = include_bytes!({:?}); b\"{}\" }}),",
            format!("lib{name}.so"),
            path.display().to_string(),
            packed.escape_ascii()
        ));
    }
    let array = format!("&[{entries}]");
    array.parse().expect("invariant: an array of literals")
}

/// Where the compiler was told that a crate lies: `--extern NAME=PATH`, if that is an `rlib`.
fn rlib(arguments: &[String], name: &str) -> Option<PathBuf> {
    let values = arguments.windows(2).filter(|pair| pair[0] == "--extern").map(|pair| pair[1].as_str());
    let of_name = |value: &str| {
        // Options of the argument stand before a colon: `priv:name=path`.
        let (front, path) = value.split_once('=')?;
        let front = front.rsplit(':').next().unwrap_or(front);
        (front == name && path.ends_with(".rlib")).then(|| PathBuf::from(path))
    };
    values.filter_map(of_name).next()
}

fn beside(rlib: &Path, name: &str) -> Option<PathBuf> {
    let library = rlib.with_file_name(format!("lib{name}.so"));
    library.is_file().then(|| library.canonicalize().unwrap_or(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_lie_beside_the_rlib_that_the_compiler_is_told_of() {
        let words = "rustc --crate-name refault --extern a=/d/liba.rmeta --extern priv:b=/d/libb.rlib --extern c";
        let arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(rlib(&arguments, "b"), Some(PathBuf::from("/d/libb.rlib")));
        assert_eq!((rlib(&arguments, "a"), rlib(&arguments, "c")), (None, None));
        assert_eq!(beside(Path::new("/nonexistent/libb.rlib"), "b"), None);
    }
}
