//! Lists the files of `console/dist`, which the gateway embeds. Building them needs Node, so they are
//! in the repository.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/dist");
    let dist = dist.canonicalize()?;
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&dist)? {
        let name = entry?.file_name().into_string();
        names.push(name.map_err(|_| io::ErrorKind::InvalidData)?);
    }
    names.sort();
    let dist = dist.to_str().ok_or(io::ErrorKind::InvalidData)?;
    let mut list = String::from("&[\n");
    for name in names {
        let path = format!("{dist}/{name}");
        let _ = writeln!(list, "({name:?}, include_bytes!({path:?})),");
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("console_files.rs"), list)
}
