//! A C project of fixed contents, made anew where a compiler is the load.

use std::io::Write;
use std::path::Path;

/// C files of [`write_sources`], without the main one.
pub const SOURCES: usize = 12;

/// [`SOURCES`] C files of so many functions each, a program of them, and its makefile.
pub fn write_sources(directory: &Path, functions: usize) -> std::io::Result<()> {
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    for file in 0..SOURCES {
        let mut source = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for number in 0..functions {
            source += &format!(
                "static unsigned part_{number}(unsigned a, unsigned b) {{\n  unsigned t[16], i, s = a * {}u + b;\n  \
                 for (i = 0; i < 16; i++) t[i] = (s >> (i % 7)) ^ (i * {}u + a);\n  \
                 for (i = 1; i < 16; i++) if (t[i] % {}u < t[i - 1] % 11u) s += t[i] * b; else s ^= t[i - 1];\n  \
                 return s;\n}}\n",
                number * 2 + 3,
                number + file,
                number % 29 + 2,
            );
        }
        source += &format!("unsigned file_{file}(unsigned s) {{\n");
        for number in 0..functions {
            source += &format!("  s = part_{number}(s, {number}u);\n");
        }
        source += "  return s;\n}\n";
        std::fs::write(directory.join(format!("file{file}.c")), source)?;
        main += &format!("unsigned file_{file}(unsigned);\n");
        calls += &format!("  s = file_{file}(s);\n");
    }
    main += &format!("int main(void) {{\n  unsigned s = 1;\n{calls}  printf(\"%u\\n\", s);\n  return 0;\n}}\n");
    std::fs::write(directory.join("main.c"), main)?;
    let objects: Vec<_> = (0..SOURCES).map(|file| format!("file{file}.o")).collect();
    let mut makefile = std::fs::File::create(directory.join("Makefile"))?;
    writeln!(makefile, "CFLAGS = -O2\nall: program\nprogram: main.o {}\n\t$(CC) -o $@ $^", objects.join(" "))?;
    writeln!(makefile, "clean:\n\trm -f *.o program\n.PHONY: all clean")
}
