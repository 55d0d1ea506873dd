//! Mounts of the container (`/proc/self/mountinfo`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u32,
    parent: u32,
    /// Absolute path.
    pub(super) point: Vec<u8>,
}

/// Reads the mounts that are visible to this process.
pub(super) fn read() -> io::Result<Vec<Mount>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Mount points below a directory, without its path in front.
pub(super) fn points_below(mounts: &[Mount], directory: &Path) -> BTreeSet<Vec<u8>> {
    let below = |mount: &Mount| {
        let point = Path::new(OsStr::from_bytes(&mount.point));
        let rest = point.strip_prefix(directory).ok()?;
        Some(rest.as_os_str().as_bytes().to_vec())
    };
    let points = mounts.iter().filter_map(below);
    points.filter(|point| !point.is_empty()).collect()
}

/// Mounts on the root itself. The others are mounted on one of these.
pub(super) fn topmost(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    let is_root = |mount: &&Mount| mount.point == b"/";
    let others = mounts.iter().filter(move |mount| !is_root(mount));
    let ids: BTreeSet<u32> = others.clone().map(|mount| mount.id).collect();
    others.filter(move |mount| !ids.contains(&mount.parent))
}

/// Path without the slash in front.
pub(super) fn relative(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

/// Returns whether a path is another one or below it.
pub(super) fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || top.is_empty())
}

/// `ID PARENT MAJOR:MINOR ROOT POINT …`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let point = unescape(fields.nth(2)?);
    Some(Mount { id, parent, point })
}

/// Space, tab, newline and backslash are octal numbers.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let number = after.get(..3).filter(|_| *first == b'\\');
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(byte);
            rest = &after[3..];
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed_and_nested_ones_known() {
        let table = "21 1 0:2 / / rw - overlay o rw\n\
            22 21 0:3 / /proc rw - proc p rw\n\
            23 22 0:4 / /proc/kcore rw - tmpfs t rw\n\
            24 21 8:1 /a /with\\040blank rw - ext4 d rw\n";
        let lines = table.as_bytes().split(|byte| *byte == b'\n');
        let mounts: Vec<_> = lines.filter_map(parse).collect();
        assert_eq!(mounts.len(), 4);
        let points: Vec<_> = topmost(&mounts).map(|mount| &mount.point[..]).collect();
        assert_eq!(points, [&b"/proc"[..], b"/with blank"]);
        assert!(points_below(&mounts, Path::new("/")).contains(&b"proc/kcore"[..]));
        let below = points_below(&mounts, Path::new("/proc"));
        assert_eq!(below, [b"kcore".to_vec()].into());
        assert!(is_at_or_below(b"/proc/kcore", b"/proc"));
        assert!(!is_at_or_below(b"/process", b"/proc"));
        assert_eq!(unescape(b"a\\134\\011b\\9"), b"a\\\tb\\9");
    }
}
