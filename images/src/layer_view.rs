//! Files of stacked layers, as an overlay mount of them shows them.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

/// Symbolic links followed in one path, as in the kernel.
const MAX_LINKS: usize = 40;

pub(crate) const OPAQUE: &std::ffi::CStr = c"trusted.overlay.opaque";

/// Unpacked layers, topmost first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerView<'a>(pub(crate) &'a [PathBuf]);

/// Outcome of looking for a path.
pub(crate) enum Found {
    Here(PathBuf),
    /// Path to continue with.
    Link(PathBuf),
    /// Lower layers do not matter: a whiteout, a file in the way, or an opaque directory.
    Hidden,
    /// Lower layers decide; the number of leading parts that are directories here.
    Below(usize),
}

impl LayerView<'_> {
    /// Place of a path on this machine, in the topmost layer that has it. Links are followed inside
    /// the layers.
    pub(crate) fn find(self, path: &Path) -> io::Result<PathBuf> {
        let mut path = plain(path);
        for _ in 0..MAX_LINKS {
            match self.find_without_links(&path, true) {
                Found::Here(place) => return Ok(place),
                Found::Link(target) => path = target,
                Found::Hidden | Found::Below(_) => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        Err(too_many_links())
    }

    /// As [`Self::find`], but a link at the end of the path is what is found.
    pub(crate) fn find_link(self, path: &Path) -> io::Result<PathBuf> {
        let mut path = plain(path);
        for _ in 0..MAX_LINKS {
            match self.find_without_links(&path, false) {
                Found::Here(place) => return Ok(place),
                Found::Link(target) => path = target,
                Found::Hidden | Found::Below(_) => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        Err(too_many_links())
    }

    /// The path without links. Its end need not exist.
    pub(crate) fn resolve(self, path: &Path) -> io::Result<PathBuf> {
        let mut path = plain(path);
        for _ in 0..MAX_LINKS {
            match self.find_without_links(&path, true) {
                Found::Link(target) => path = target,
                _ => return Ok(Path::new("/").join(path)),
            }
        }
        Err(too_many_links())
    }

    fn find_without_links(self, path: &Path, follow_last: bool) -> Found {
        let mut directories = 0;
        for layer in self.0 {
            match find_in(layer, path, directories, follow_last) {
                Found::Below(here) => directories = directories.max(here),
                found => return found,
            }
        }
        Found::Below(directories)
    }
}

fn too_many_links() -> io::Error {
    rustix::io::Errno::LOOP.into()
}

/// Looks in one layer. The first `directories` parts are directories of layers above, which hide
/// everything here but directories.
fn find_in(layer: &Path, path: &Path, directories: usize, follow_last: bool) -> Found {
    let mut place = layer.to_owned();
    let mut is_hidden = false;
    let mut parts = path.components();
    let mut inside = PathBuf::new();
    let mut depth = 0;
    while let Some(part) = parts.next() {
        place.push(part);
        let Ok(metadata) = fs::symlink_metadata(&place) else {
            return if is_hidden {
                Found::Hidden
            } else {
                Found::Below(depth)
            };
        };
        let kind = metadata.file_type();
        let is_whiteout = kind.is_char_device() && metadata.rdev() == 0;
        if is_whiteout || (depth < directories && !kind.is_dir()) {
            return Found::Hidden;
        }
        let is_last = parts.as_path().as_os_str().is_empty();
        if kind.is_symlink() && (follow_last || !is_last) {
            return fs::read_link(&place).map_or(Found::Hidden, |target| {
                Found::Link(plain(&inside.join(target).join(parts.as_path())))
            });
        }
        if !kind.is_dir() && !is_last {
            return Found::Hidden;
        }
        inside.push(part);
        depth += 1;
        is_hidden |= kind.is_dir() && is_opaque(&place);
    }
    Found::Here(place)
}

fn is_opaque(directory: &Path) -> bool {
    let mut value = [0; 1];
    rustix::fs::lgetxattr(directory, OPAQUE, &mut value[..]).is_ok_and(|read| read == 1)
        && value == *b"y"
}

/// The path relative to the root, without `.` and `..`; `..` of the root is the root.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::RootDir => plain = PathBuf::new(),
            Component::ParentDir => drop(plain.pop()),
            Component::Normal(name) => plain.push(name),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}
