//! The command line of refault.

fn main() {
    eprintln!("refault: no command is built yet");
    std::process::exit(2);
}
