//! A loader that is given as the program: which program it is to load, and where it looks for libraries.

/// Copies an argument of a program into a buffer, as much as fits, and says how many bytes those are; `None` behind the
/// last.
pub type Arguments<'a> = dyn Fn(usize, &mut [u8]) -> Option<usize> + 'a;

/// What glibc's loader was told on its command line, by the places of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The program.
    pub(crate) program: usize,
    /// Where libraries are looked for first (`--library-path`).
    pub(crate) libraries: Option<usize>,
}

/// Options that take the argument behind them.
const WITH_VALUE: [&[u8]; 7] = [
    b"--library-path",
    b"--glibc-hwcaps-prepend",
    b"--glibc-hwcaps-mask",
    b"--inhibit-rpath",
    b"--audit",
    b"--preload",
    b"--argv0",
];
/// Arguments that are looked at.
const MAX_ARGUMENTS: usize = 64;

/// Reads the arguments of glibc's loader. `None` if it is to load no program.
pub(crate) fn read(arguments: &Arguments<'_>) -> Option<Told> {
    let (mut at, mut libraries) = (1, None);
    while at < MAX_ARGUMENTS {
        let mut word = [0; 64];
        let len = arguments(at, &mut word)?;
        let word = &word[..len];
        if !word.starts_with(b"--") {
            return Some(Told { program: at, libraries });
        }
        if word == b"--library-path" {
            libraries = Some(at + 1);
        }
        at += if WITH_VALUE.contains(&word) { 2 } else { 1 };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &[&str]) -> Option<Told> {
        read(&|at, into| {
            let word = words.get(at)?.as_bytes();
            let len = word.len().min(into.len());
            into[..len].copy_from_slice(&word[..len]);
            Some(len)
        })
    }

    #[test]
    fn the_program_comes_behind_the_loaders_options() {
        assert_eq!(told(&["ld.so", "./a", "--list"]), Some(Told { program: 1, libraries: None }));
        let words = ["ld.so", "--inhibit-cache", "--library-path", "/x", "--preload", "b.so", "--argv0", "c", "./a"];
        assert_eq!(told(&words), Some(Told { program: 8, libraries: Some(3) }));
        for words in [&["ld.so"][..], &["ld.so", "--version"], &["ld.so", "--argv0"]] {
            assert_eq!(told(words), None);
        }
    }
}
