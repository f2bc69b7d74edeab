# A crate with a build script and a unit test, built by cargo and run.
set -e
home=$(mktemp -d)
cd "$home"
mkdir src
printf '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml
printf 'fn main() { println!("cargo:rustc-env=ANSWER=42"); }\n' >build.rs
printf 'fn main() { let m: std::collections::HashMap<u32, String> = (0..1000).map(|i| (i, i.to_string())).collect(); println!("{} {}", env!("ANSWER"), m.values().map(String::len).sum::<usize>()); }\n#[test]\nfn sum() { assert_eq!(2 + 2, 4); }\n' >src/main.rs
CARGO_HOME="$home/.cargo" CARGO_TARGET_DIR="$home/target" cargo run -q --offline
CARGO_HOME="$home/.cargo" CARGO_TARGET_DIR="$home/target" cargo test -q --offline 2>/dev/null | grep -o 'test result: ok. 1 passed'
cd /
rm -rf "$home"
