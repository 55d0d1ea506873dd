//! Size of an upper directory, found in a bounded time.

use std::time::Duration;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use tokio::time::Instant;

/// Time of the walk. A larger upper directory has no known size.
const TIMEOUT: Duration = Duration::from_secs(3);
const MAX_DEPTH: usize = 512;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// Adds up blocks and files below a directory; `None` if that takes too long or fails.
pub(super) fn measure(directory: BorrowedFd<'_>) -> Option<Usage> {
    let end = Instant::now() + TIMEOUT;
    let mut usage = Usage::default();
    let mut stack = vec![open(directory, b".")?];
    while let Some((directory, names)) = stack.last_mut() {
        let Some(name) = names.pop() else {
            stack.pop();
            continue;
        };
        if Instant::now() > end {
            return None;
        }
        let Ok(found) = statat(&*directory, &*name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        usage.files += 1;
        usage.bytes += u64::try_from(found.st_blocks).unwrap_or_default() * 512;
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        if is_directory && stack.len() < MAX_DEPTH {
            let (directory, _) = stack.last()?;
            let below = open(directory.as_fd(), &name)?;
            stack.push(below);
        }
    }
    Some(usage)
}

fn open(parent: BorrowedFd<'_>, name: &[u8]) -> Option<(OwnedFd, Vec<Vec<u8>>)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(parent, name, flags, Mode::empty()).ok()?;
    let entries = Dir::read_from(&directory).ok()?.filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_bytes().to_vec());
    let names = names
        .filter(|name| !matches!(&name[..], b"." | b".."))
        .collect();
    Some((directory, names))
}
