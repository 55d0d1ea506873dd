//! Listing of a directory tree by everything that a container sees of its files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

/// One line for each file, by path relative to the root: type, mode, owner, time, and the content
/// or target.
pub type Listing = BTreeMap<PathBuf, String>;

/// Reads a tree. Names of one file have the same `links=` with the first of them.
pub fn listing(root: &Path) -> io::Result<Listing> {
    let mut lines = Listing::new();
    let mut first_names = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let inside = path.strip_prefix(root).unwrap_or(&path).to_owned();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
        let content = content(&path, &metadata)?;
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let attributes = attributes(&path)?;
        let line = format!("{mode:o} {uid}:{gid} {seconds}.{nanoseconds:09} {content}{attributes}");
        if !metadata.is_dir() && metadata.nlink() > 1 {
            let names: &mut Vec<PathBuf> = first_names.entry(metadata.ino()).or_default();
            names.push(inside.clone());
        }
        lines.insert(inside, line);
    }
    for mut names in first_names.into_values() {
        names.sort();
        for name in &names {
            if let Some(line) = lines.get_mut(name) {
                let _ = write!(line, " links={names:?}");
            }
        }
    }
    Ok(lines)
}

fn content(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
    let kind = metadata.file_type();
    Ok(if kind.is_symlink() {
        format!("-> {}", fs::read_link(path)?.display())
    } else if kind.is_file() {
        let hash = digest(&SHA256, &fs::read(path)?);
        format!("{} {}", metadata.len(), HEXLOWER.encode(hash.as_ref()))
    } else if kind.is_char_device() || kind.is_block_device() {
        format!("device {}", metadata.rdev())
    } else {
        String::new()
    })
}

fn attributes(path: &Path) -> io::Result<String> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut text = String::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        let name = String::from_utf8_lossy(name);
        let _ = write!(text, " {name}={}", HEXLOWER.encode(&value[..length]));
    }
    Ok(text)
}

/// Differences of two listings, one line each; empty if they are equal.
pub fn difference(left: &Listing, right: &Listing) -> Vec<String> {
    let names = left.keys().chain(right.keys());
    let names: std::collections::BTreeSet<_> = names.collect();
    let differ = names
        .into_iter()
        .filter(|name| left.get(*name) != right.get(*name));
    differ
        .map(|name| {
            format!(
                "{}: {:?} / {:?}",
                name.display(),
                left.get(name),
                right.get(name)
            )
        })
        .collect()
}
