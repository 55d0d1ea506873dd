//! Owner, mode, times and extended attributes of files.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    fchmod, fchown, fsetxattr, futimens, lsetxattr, utimensat,
};
use rustix::io::{Errno, Result};

/// Metadata of a file, as an archive states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Permissions with set-id and sticky bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified: Timespec,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Metadata {
    /// Directory that no layer describes.
    pub(super) const DIRECTORY: Self = Self {
        mode: 0o755,
        uid: 0,
        gid: 0,
        modified: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        xattrs: Vec::new(),
    };

    /// Sets everything but the time. The owner comes first, because a new one clears set-id bits
    /// and capabilities; the mode last, because it has precedence over an access control list.
    pub(super) fn apply(&self, file: impl AsFd) -> Result<()> {
        fchown(&file, Some(self.owner()), Some(self.group()))?;
        for (key, value) in self.allowed_xattrs() {
            ignore_unsupported(fsetxattr(&file, key, value, XattrFlags::empty()))?;
        }
        fchmod(&file, self.permissions())
    }

    pub(super) fn apply_with_time(&self, file: impl AsFd) -> Result<()> {
        self.apply(&file)?;
        futimens(&file, &times(self.modified))
    }

    /// As [`Self::apply_with_time`], for a file that cannot be opened.
    pub(super) fn apply_at(&self, directory: impl AsFd, name: &[u8], kind: FileType) -> Result<()> {
        self.set_owner_at(&directory, name)?;
        self.set_xattrs_at(&directory, name, kind)?;
        if kind != FileType::Symlink {
            chmodat(&directory, name, self.permissions(), AtFlags::empty())?;
        }
        self.set_time_at(&directory, name)
    }

    /// As [`Self::apply_at`], for another name of a file: what does not differ stays untouched, so
    /// that the file keeps its capabilities.
    pub(super) fn apply_changes_at(
        &self,
        directory: impl AsFd,
        name: &[u8],
        before: &Stat,
    ) -> Result<()> {
        let kind = FileType::from_raw_mode(before.st_mode);
        let is_owner_new = (before.st_uid, before.st_gid) != (self.uid, self.gid);
        if is_owner_new {
            self.set_owner_at(&directory, name)?;
        }
        self.set_xattrs_at(&directory, name, kind)?;
        let is_mode_new = is_owner_new || before.st_mode & 0o7777 != self.mode;
        if is_mode_new && kind != FileType::Symlink {
            chmodat(&directory, name, self.permissions(), AtFlags::empty())?;
        }
        if modified(before) != self.modified {
            self.set_time_at(&directory, name)?;
        }
        Ok(())
    }

    fn set_owner_at(&self, directory: impl AsFd, name: &[u8]) -> Result<()> {
        let (owner, group) = (Some(self.owner()), Some(self.group()));
        chownat(directory, name, owner, group, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_time_at(&self, directory: impl AsFd, name: &[u8]) -> Result<()> {
        let times = times(self.modified);
        utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_xattrs_at(&self, directory: impl AsFd, name: &[u8], kind: FileType) -> Result<()> {
        for (key, value) in self.allowed_xattrs() {
            let place = descriptor_path(&directory, name);
            let set = lsetxattr(place, key, value, XattrFlags::empty());
            // Only regular files and directories have attributes of users.
            let has_user_xattrs = matches!(kind, FileType::RegularFile | FileType::Directory);
            let is_impossible = !has_user_xattrs && key.starts_with(b"user.");
            if set != Err(Errno::PERM) || !is_impossible {
                ignore_unsupported(set)?;
            }
        }
        Ok(())
    }

    /// Extended attributes but trusted ones and those of overlay mounts, which mark whiteouts,
    /// opaque directories and redirections: an archive must not forge them.
    fn allowed_xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.xattrs.iter();
        all.map(|(key, value)| (key.as_slice(), value.as_slice()))
            .filter(|(key, _)| !key.starts_with(b"trusted.") && !key.starts_with(b"user.overlay."))
    }

    fn owner(&self) -> Uid {
        Uid::from_raw(self.uid)
    }

    fn group(&self) -> Gid {
        Gid::from_raw(self.gid)
    }

    fn permissions(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }
}

/// Path of a name in an open directory, for calls that take no descriptor.
pub(super) fn descriptor_path(directory: impl AsFd, name: &[u8]) -> Vec<u8> {
    let descriptor = directory.as_fd().as_raw_fd();
    [format!("/proc/self/fd/{descriptor}/").as_bytes(), name].concat()
}

pub(super) fn modified(stat: &Stat) -> Timespec {
    Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
    }
}

pub(super) fn times(modified: Timespec) -> Timestamps {
    Timestamps {
        last_access: modified,
        last_modification: modified,
    }
}

/// File systems do not have all kinds of attributes.
fn ignore_unsupported(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}
