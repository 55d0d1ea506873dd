//! Lists the files of `console/dist`, which the gateway embeds. Building them needs Node, so they are
//! in the repository.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// Relative to this package, where Cargo runs this program. No absolute path is kept: build results
/// may be shared by several checkouts.
const DIST: &str = "../../console/dist";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={DIST}");
    let mut names = Vec::new();
    for entry in fs::read_dir(DIST)? {
        let name = entry?.file_name().into_string();
        names.push(name.map_err(|_| io::ErrorKind::InvalidData)?);
    }
    names.sort();
    let mut list = String::from("&[\n");
    for name in names {
        let path = format!("/{DIST}/{name}");
        let _ = writeln!(
            list,
            "({name:?}, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),"
        );
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("console_files.rs"), list)
}
