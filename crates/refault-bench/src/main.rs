//! The door to the benchmarks; they themselves are the library [`refault_bench`].

fn main() -> std::process::ExitCode {
    refault_bench::main()
}
