//! Owner, mode, time and extended attributes of a file.

use std::io;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod,
    fchown, fgetxattr, flistxattr, fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;

/// Limit of one attribute in the kernel.
const MAX_XATTR_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Permissions with set-id and sticky bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Time of the last change of the content: seconds and nanoseconds.
    pub(super) modified: (i64, u32),
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Metadata {
    /// Metadata without extended attributes.
    pub(super) fn new(stat: &Stat) -> Self {
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
        Self {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            modified: (stat.st_mtime, nanoseconds),
            xattrs: Vec::new(),
        }
    }

    pub(super) fn read_xattrs(&mut self, file: impl AsFd) -> io::Result<()> {
        let mut names = vec![0; MAX_XATTR_BYTES];
        let length = match flistxattr(&file, &mut names) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            length => length?,
        };
        let mut value = vec![0; MAX_XATTR_BYTES];
        let names = names[..length].split(|byte| *byte == 0);
        for name in names.filter(|name| is_kept(name)) {
            match fgetxattr(&file, name, &mut value) {
                Ok(length) => self.xattrs.push((name.to_vec(), value[..length].to_vec())),
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sets all but the time. The owner comes first, because a new one clears set-id bits and
    /// capabilities; the mode last, because an access control list changes it.
    pub(super) fn apply(&self, file: impl AsFd) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        fchown(&file, Some(uid), Some(gid))?;
        for (name, value) in self.xattrs.iter().filter(|(name, _)| is_kept(name)) {
            match fsetxattr(&file, &**name, value, XattrFlags::empty()) {
                // A container without the capability, or a file system without attributes.
                Ok(()) | Err(Errno::PERM | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(fchmod(&file, Mode::from_raw_mode(self.mode))?)
    }

    pub(super) fn apply_time(&self, file: impl AsFd) -> io::Result<()> {
        Ok(futimens(file, &self.times())?)
    }

    /// Sets owner, mode and time of a file that cannot be opened.
    pub(super) fn apply_at(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        kind: FileType,
    ) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(directory, name, Some(uid), Some(gid), flags)?;
        if kind != FileType::Symlink {
            // Just made by this process, so it is no link.
            let mode = Mode::from_raw_mode(self.mode);
            rustix::fs::chmodat(directory, name, mode, AtFlags::empty())?;
        }
        self.apply_time_at(directory, name)
    }

    pub(super) fn apply_time_at(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(utimensat(directory, name, &self.times(), flags)?)
    }

    fn times(&self) -> Timestamps {
        let modified = Timespec {
            tv_sec: self.modified.0,
            tv_nsec: self.modified.1.into(),
        };
        Timestamps {
            last_access: modified,
            last_modification: modified,
        }
    }
}

/// Attributes of users, capabilities and access control lists. Others belong to the node, such as
/// labels, or to an overlay, which must not be forged.
fn is_kept(name: &[u8]) -> bool {
    const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
    let is_of_user = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
    is_of_user || name == b"security.capability" || LISTS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_node_and_overlay_are_left_out() {
        for (name, expected) in [
            ("user.a", true),
            ("security.capability", true),
            ("system.posix_acl_default", true),
            ("user.overlay.opaque", false),
            ("trusted.overlay.opaque", false),
            ("security.selinux", false),
        ] {
            assert_eq!(is_kept(name.as_bytes()), expected, "{name}");
        }
    }
}
