//! Space that a directory takes. Untrusted programs change it at the same time.

use std::ffi::CStr;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};
use tokio_util::sync::CancellationToken;

/// Bytes charged for each file, as ext4 stores them, so that empty files are not free.
const INODE_BYTES: u64 = 256;
const BLOCK_BYTES: u64 = 512;
/// Levels of directories. All directories above a file are open while it is measured.
const MAX_DEPTH: usize = 256;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Bytes on disk below `path`, about as `du` counts them. A tree with more levels than can be
/// measured has no end. Unreadable directories and other mounts count nothing.
pub(crate) fn usage(path: &Path, stop: &CancellationToken) -> u64 {
    let opened = openat(CWD, path, DIRECTORY, Mode::empty());
    let Some((directory, own)) = opened.ok().and_then(|opened| {
        let own = status(&opened, c"")?;
        Some((opened, own))
    }) else {
        return 0;
    };
    let mut walk = Walk {
        mount: own.stx_mnt_id,
        bytes: charge(&own),
        stop,
    };
    walk.directory(directory, 0);
    walk.bytes
}

fn status(directory: impl AsFd, name: &CStr) -> Option<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    statx(directory, name, flags, wanted).ok()
}

fn is_directory(file: &Statx) -> bool {
    FileType::from_raw_mode(file.stx_mode.into()).is_dir()
}

/// Each link of a file is charged its share: a set of the files already seen would have no bound.
fn charge(file: &Statx) -> u64 {
    let blocks = file.stx_blocks.saturating_mul(BLOCK_BYTES);
    let links = if is_directory(file) {
        1
    } else {
        file.stx_nlink
    };
    blocks.saturating_add(INODE_BYTES) / u64::from(links.max(1))
}

struct Walk<'a> {
    mount: u64,
    bytes: u64,
    stop: &'a CancellationToken,
}

impl Walk<'_> {
    /// Adds the contents of a directory.
    fn directory(&mut self, directory: OwnedFd, depth: usize) {
        if depth == MAX_DEPTH {
            self.bytes = u64::MAX;
            return;
        }
        let Ok(mut entries) = Dir::new(directory) else {
            return;
        };
        while let Some(Ok(entry)) = entries.read() {
            // Only a sum without an end is as large as that.
            if self.stop.is_cancelled() || self.bytes == u64::MAX {
                return;
            }
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            // A file that has vanished takes no space.
            let Ok(parent) = entries.fd() else { return };
            let Some(found) = status(parent, name) else {
                continue;
            };
            if found.stx_mnt_id != self.mount {
                continue;
            }
            self.bytes = self.bytes.saturating_add(charge(&found));
            if is_directory(&found)
                && let Ok(child) = openat(parent, name, DIRECTORY, Mode::empty())
            {
                self.directory(child, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    fn measured(path: &Path) -> u64 {
        usage(path, &CancellationToken::new())
    }

    #[test]
    fn usage_counts_blocks_once_and_follows_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("inner")).unwrap();
        let empty = measured(directory.path());
        let odd = path("inner").join(OsStr::from_bytes(b"\xff\n"));
        fs::write(&odd, vec![1; 1 << 20]).unwrap();
        let written = measured(directory.path()) - empty;
        assert!((1 << 20..1 << 21).contains(&written), "{written}");
        fs::hard_link(&odd, path("link")).unwrap();
        assert_eq!(measured(directory.path()) - empty, written);
        let sparse = File::create(path("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        symlink("/usr", path("usr")).unwrap();
        symlink(".", path("loop")).unwrap();
        assert!(measured(directory.path()) - empty < 1 << 21);
        assert_eq!(measured(&path("usr")), 0);
        assert_eq!(measured(&path("vanished")), 0);
    }

    #[test]
    fn tree_with_too_many_levels_has_no_end() {
        let directory = tempfile::tempdir().unwrap();
        let deep = |levels| directory.path().join("d/".repeat(levels));
        fs::create_dir_all(deep(MAX_DEPTH - 1)).unwrap();
        assert!(measured(directory.path()) < u64::MAX);
        fs::create_dir_all(deep(MAX_DEPTH)).unwrap();
        assert_eq!(measured(directory.path()), u64::MAX);
        let stopped = CancellationToken::new();
        stopped.cancel();
        assert!(usage(directory.path(), &stopped) < u64::MAX);
    }
}
