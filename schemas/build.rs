//! Puts every stored schema into the binary, so that `registry.toml` is the only place that names them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    println!("cargo:rerun-if-changed=avro");
    println!("cargo:rerun-if-changed=registry.toml");
    let mut files = Vec::new();
    collect(&root.join("avro"), &mut files)?;
    files.sort();
    // The folder is asked for again when the code is compiled: another checkout may find this file in a shared target folder.
    let mut code = String::from(
        "pub(super) const REGISTRY: &str = include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/registry.toml\"));\n\
         pub(super) const FILES: &[(&str, &str)] = &[\n",
    );
    for file in files {
        let name = file.strip_prefix(&root).map_err(io::Error::other)?;
        let name = name.display();
        writeln!(code, "    (\"{name}\", include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{name}\"))),")
            .map_err(io::Error::other)?;
    }
    code.push_str("];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?).join("schema_files.rs"), code)
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|e| e == "avsc") {
            into.push(path);
        }
    }
    Ok(())
}
