//! Hash of the client's source: a hash of directories, in which names and contents count.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{hex, md5, shorten};

/// Shortened hash of a directory.
pub fn source_hash(root: &Path) -> io::Result<String> {
    directory_hash(root).map(shorten)
}

/// Hash of all files below a directory. Fails if there is none, or if links form a cycle.
pub fn directory_hash(root: &Path) -> io::Result<[u8; 16]> {
    let hashed = hash(root, &mut HashSet::new())?;
    hashed.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no file to hash"))
}

/// `None` without a file at any depth. `above` are the real directories around this one.
fn hash(directory: &Path, above: &mut HashSet<PathBuf>) -> io::Result<Option<[u8; 16]>> {
    let real = directory.canonicalize()?;
    if !above.insert(real.clone()) {
        let text = format!("{} contains itself", directory.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Links count as what they point to, and broken ones not at all.
        let Ok(kind) = fs::metadata(&path) else {
            continue;
        };
        if kind.is_dir() {
            if is_excluded_directory(&name) {
                continue;
            }
            if let Some(inner) = hash(&path, above)? {
                entries.push(format!("dirhash:{}\0name:{name}", hex(inner)));
            }
        } else if !is_compiled(&name) {
            let content = hex(md5([fs::read(&path)?.as_slice()]));
            entries.push(format!("data:{content}\0name:{name}"));
        }
    }
    above.remove(&real);
    entries.sort();
    let hashed = md5([entries.join("\0\0").as_bytes()]);
    Ok((!entries.is_empty()).then_some(hashed))
}

fn is_excluded_directory(name: &str) -> bool {
    name.starts_with('.') || name == "__pycache__" || is_compiled(name)
}

/// The client's patterns distinguish upper and lower case.
fn is_compiled(name: &str) -> bool {
    name.strip_suffix(".pyc").is_some()
}
