//! Whiteouts and opaque markers, in the form that overlay mounts read.

use rustix::fs::mknodat;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, XattrFlags, chownat, fsetxattr, makedev};
use rustix::io::{Errno, Result};

use super::directories::Directory;
use super::{Tree, kind_of};
use crate::layer_view::OPAQUE;
use crate::unpack::entry::join;
use crate::unpack::metadata::Metadata;

pub(super) const WHITEOUT: &[u8] = b".wh.";
const OPAQUE_MARKER: &[u8] = b".wh..wh..opq";
/// Bookkeeping of another union file system.
const RESERVED: &[u8] = b".wh..wh.";

impl Tree<'_> {
    /// Applies a whiteout or opaque marker. Both hide only what is below this layer.
    pub(super) fn hide(&mut self, parent: &Directory, name: &[u8], owner: &Metadata) -> Result<()> {
        if name == OPAQUE_MARKER {
            return set_opaque(parent);
        }
        if name.starts_with(RESERVED) {
            return Ok(());
        }
        let hidden = &name[WHITEOUT.len()..];
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Errno::INVAL);
        }
        match kind_of(&parent.descriptor, hidden)? {
            Some(FileType::Directory) => {
                let path = join(&parent.path, hidden);
                set_opaque(&*self.directories.open_plain(&path)?)
            }
            Some(_) => Ok(()),
            None => make_whiteout(parent, hidden, owner),
        }
    }
}

pub(super) fn set_opaque(directory: &Directory) -> Result<()> {
    fsetxattr(&directory.descriptor, OPAQUE, b"y", XattrFlags::empty())
}

fn make_whiteout(parent: &Directory, name: &[u8], owner: &Metadata) -> Result<()> {
    let (directory, device) = (&parent.descriptor, makedev(0, 0));
    mknodat(
        directory,
        name,
        FileType::CharacterDevice,
        Mode::empty(),
        device,
    )?;
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    chownat(
        directory,
        name,
        Some(uid),
        Some(gid),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}
