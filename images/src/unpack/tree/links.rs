//! Hard links, also to files of the layers below.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, linkat, statat};
use rustix::io::Errno;

use super::directories::{Directory, Reached};
use super::{Tree, failed, failed_io, kind_of};
use crate::layer_view::LayerView;
use crate::unpack::entry::{join, shown, split};
use crate::unpack::metadata::Metadata;
use crate::unpack::{UnpackError, copy_up};

impl Tree<'_> {
    /// Makes `name` another name of the file `target`. One of a layer below is copied first.
    pub(super) fn hard_link(
        &mut self,
        parent: &Directory,
        name: &[u8],
        target: &[u8],
        metadata: &Metadata,
    ) -> Result<(), UnpackError> {
        let path = join(&parent.path, name);
        let at = |error| failed(&path)(error);
        let missing = || UnpackError::LinkTarget(shown(&path), shown(target));
        let from = self.link_target(target)?.ok_or_else(missing)?;
        let (_, target) = split(target);
        if (&from.path, target) != (&parent.path, name) {
            let flags = AtFlags::empty();
            let link = || linkat(&from.descriptor, target, &parent.descriptor, name, flags);
            let linked = match link() {
                Err(Errno::EXIST) => {
                    self.remove(parent, name).map_err(at)?;
                    link()
                }
                linked => linked,
            };
            linked.map_err(at)?;
        }
        let before = statat(&parent.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let applied =
            before.and_then(|file| metadata.apply_changes_at(&parent.descriptor, name, &file));
        applied.map_err(at)
    }

    /// Directory of this layer that has the file; `None` if the image does not have it.
    fn link_target(&mut self, target: &[u8]) -> Result<Option<Rc<Directory>>, UnpackError> {
        let (above, name) = split(target);
        if name.is_empty() {
            return Ok(None);
        }
        if let Ok(Reached::Open(directory)) = self.directories.reach(above) {
            match kind_of(&directory.descriptor, name).map_err(failed(target))? {
                None => {}
                Some(FileType::CharacterDevice | FileType::Directory) => return Ok(None),
                Some(_) => return Ok(Some(directory)),
            }
        }
        self.copy_up(above, name)
    }

    /// Copies a file of the layers below to its place in this layer.
    fn copy_up(&mut self, above: &[u8], name: &[u8]) -> Result<Option<Rc<Directory>>, UnpackError> {
        let view = LayerView(&self.layers);
        let Ok((path, place)) = find(view, above, name) else {
            return Ok(None);
        };
        let found = fs::symlink_metadata(&place).map_err(failed_io(name))?;
        if !found.is_file() && !found.is_symlink() {
            return Ok(None);
        }
        self.usage.add(found.len())?;
        let directory = self.directory(path.as_os_str().as_bytes())?;
        if kind_of(&directory.descriptor, name)
            .map_err(failed(name))?
            .is_none()
        {
            let path = join(&directory.path, name);
            copy_up::copy(&place, &directory.descriptor, name).map_err(failed_io(&path))?;
        }
        Ok(Some(directory))
    }
}

/// Path of the directory without links, and place of the file on this machine.
fn find(view: LayerView<'_>, above: &[u8], name: &[u8]) -> io::Result<(PathBuf, PathBuf)> {
    let above = view.resolve(Path::new(OsStr::from_bytes(above)))?;
    let above = above.strip_prefix("/").unwrap_or(&above).to_owned();
    let place = view.find_link(&above.join(OsStr::from_bytes(name)))?;
    Ok((above, place))
}
