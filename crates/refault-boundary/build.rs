//! Asks the loader to start the library before all others, so that what their constructors allocate is managed too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
