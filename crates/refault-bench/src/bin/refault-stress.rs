//! The door to the stress program; the program itself is [`refault_bench::stress`].

fn main() -> std::process::ExitCode {
    refault_bench::stress::main()
}
