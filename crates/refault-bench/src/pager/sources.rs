//! A C project of fixed contents, made anew where a compiler is the load.

use std::io::Write;
use std::path::Path;

/// C files of [`write_sources`], without the main one.
pub const SOURCES: usize = 12;

const MAIN: &str = include_str!("../../programs/project_main.c");
const FILE: &str = include_str!("../../programs/project_file.c");
const PART: &str = include_str!("../../programs/project_part.c");

/// [`SOURCES`] C files of `functions` functions each, a program of them, and its makefile.
pub fn write_sources(directory: &Path, functions: usize) -> std::io::Result<()> {
    for file in 0..SOURCES {
        std::fs::write(directory.join(format!("file{file}.c")), source(file, functions))?;
    }
    let declarations: String = (0..SOURCES).map(|file| format!("unsigned file_{file}(unsigned);\n")).collect();
    let calls: String = (0..SOURCES).map(|file| format!("    sum = file_{file}(sum);\n")).collect();
    let main = MAIN.replace("DECLARATIONS\n", &declarations).replace("CALLS\n", &calls);
    std::fs::write(directory.join("main.c"), main)?;
    let objects: Vec<_> = (0..SOURCES).map(|file| format!("file{file}.o")).collect();
    let mut makefile = std::fs::File::create(directory.join("Makefile"))?;
    writeln!(makefile, "CFLAGS = -O2\nall: program\nprogram: main.o {}\n\t$(CC) -o $@ $^", objects.join(" "))?;
    writeln!(makefile, "clean:\n\trm -f *.o program\n.PHONY: all clean")
}

fn source(file: usize, functions: usize) -> String {
    let part = |number: usize| {
        let numbers =
            [("NUMBER", number), ("FACTOR", number * 2 + 3), ("SHIFT", number + file), ("DIVISOR", number % 29 + 2)];
        with_numbers(PART, &numbers)
    };
    let parts: String = (0..functions).map(part).collect();
    let calls: String = (0..functions).map(|number| format!("    sum = part_{number}(sum, {number}u);\n")).collect();
    let file = FILE.replace("NUMBER", &file.to_string());
    file.replace("PARTS\n", &parts).replace("CALLS\n", &calls)
}

/// A function whose words in capitals are replaced by numbers, without the comment at its top.
pub fn with_numbers(function: &str, numbers: &[(&str, usize)]) -> String {
    let (_, code) = function.split_once("*/\n").expect("invariant: a comment is at the top of each");
    numbers.iter().fold(code.to_owned(), |code, (word, number)| code.replace(word, &number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same numbers stand in the same places as in every version before, since runs are compared with older ones.
    #[test]
    fn no_word_in_capitals_is_left_and_every_file_has_its_own_numbers() {
        let directory = tempfile::tempdir().expect("a directory");
        write_sources(directory.path(), 30).expect("written");
        let text = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("it was written");
        for name in ["main.c".to_owned(), format!("file{}.c", SOURCES - 1)] {
            let (_, code) = text(&name).split_once("*/\n").map(|(_, code)| ((), code.to_owned())).expect("a comment");
            assert!(!code.contains(|letter: char| letter.is_ascii_uppercase()), "{name}: {code}");
        }
        let (main, file) = (text("main.c"), text("file3.c"));
        assert!(main.contains("unsigned file_11(unsigned);\n") && main.contains("    sum = file_11(sum);\n"), "{main}");
        for part in
            ["part_29(unsigned a", "a * 61u + b", "(i * 32u + a)", "% 2u <", "sum = part_29(sum, 29u);", "file_3("]
        {
            assert!(file.contains(part), "{part} is missing: {file}");
        }
    }
}
