//! Compiles the API anew when the exported web pages change: they are part of the program.

fn main() {
    println!("cargo:rerun-if-changed=../web/out");
}
