//! Owner, mode, times and extended attributes of files.

use std::os::fd::OwnedFd;

use rustix::fs::{Gid, Mode, Uid, XattrFlags, fchmod, fchown, fsetxattr, futimens};
use rustix::io::Errno;

use super::entry::Metadata;

/// Owner before mode, because a new owner clears set-id bits; capabilities after the owner.
pub(super) fn set_metadata(file: &OwnedFd, metadata: &Metadata) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(metadata.uid), Gid::from_raw(metadata.gid));
    fchown(file, Some(uid), Some(gid))?;
    fchmod(file, Mode::from_raw_mode(metadata.mode))?;
    for (key, value) in attributes(metadata) {
        ignore_unsupported(fsetxattr(file, key, value, XattrFlags::empty()))?;
    }
    futimens(file, &metadata.times())
}

/// Extended attributes but those by which overlay mounts mark files: an archive must not forge them.
pub(super) fn attributes(metadata: &Metadata) -> impl Iterator<Item = (&[u8], &[u8])> {
    let all = metadata.xattrs.iter();
    all.map(|(key, value)| (key.as_slice(), value.as_slice()))
        .filter(|(key, _)| {
            !key.starts_with(b"trusted.overlay.") && !key.starts_with(b"user.overlay.")
        })
}

/// File systems do not have all kinds of attributes.
pub(super) fn ignore_unsupported(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::OPNOTSUPP | Errno::PERM) => Ok(()),
        result => result,
    }
}
