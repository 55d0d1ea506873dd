//! Root by an archive: changed files are written to the volume when the command has stopped, and
//! unpacked before it starts (`docs/decisions/116-archive-of-the-root.md`).

mod changes;
mod entry;
mod header;
mod layer;
mod list;
mod metadata;
mod pack;
mod pax;
mod seal;
mod sparse;
mod tar_reader;
mod tar_writer;
mod unpack;
mod upper;
mod walk;

use std::fs::File;
use std::io::{self, ErrorKind, Seek as _, SeekFrom};
use std::path::Path;

use crds::contract::persistence::{KeptState, PersistenceLevel, SaveLimits, StateAccess};
use rustix::fd::OwnedFd;
use rustix::rand::GetRandomFlags;

use self::header::{ArchiveHeader, SALT_BYTES, VERSION};
pub(super) use self::layer::LayerArchive;
use self::list::FileList;
use self::pack::Packed;
use self::seal::{Opener, Sealer, StateKey};
use self::walk::Tree;
use super::deadline::Deadline;
use super::error::StateError;
use super::store::Store;
use super::{format, image_change};

const ARCHIVE: &str = "archive";
const TEMPORARY: &str = "archive.new";
/// Archive of another image, until the next save.
const PREVIOUS: &str = "archive.previous";
/// Archive of a format that an older supervisor did not know. No save removes it.
const NEWER: &str = "archive.newer";
/// Archive that could not be restored.
const REFUSED: &str = "archive.refused";

#[derive(Debug)]
pub(super) struct ArchiveRoot {
    store: Store,
    tree: Tree,
    list: FileList,
}

impl ArchiveRoot {
    /// Lists all files below `root` but those on other mounts and below `private`.
    pub(super) fn prepare(
        store: Store,
        root: &Path,
        private: &[&Path],
    ) -> Result<Self, StateError> {
        let tree = Tree::open(root, private)?;
        let list = FileList::create(&store, &tree)?;
        let root = Self { store, tree, list };
        root.take_back().map_err(StateError::io("read the store"))?;
        Ok(root)
    }

    /// Removes all archives.
    pub(super) fn discard(&self) -> Result<(), StateError> {
        for name in [ARCHIVE, TEMPORARY, PREVIOUS, NEWER, REFUSED] {
            let removed = self.store.remove(name);
            removed.map_err(StateError::io("remove an archive"))?;
        }
        Ok(())
    }

    /// Returns whether there is an archive.
    pub(super) fn has_state(&self) -> bool {
        self.store.has(ARCHIVE) || self.store.has(PREVIOUS)
    }

    /// Unpacks the archive if it is authentic and fits the image. An archive of another image is
    /// set aside until the next save, and one that cannot be restored is kept as well.
    pub(super) fn restore(&self, access: &StateAccess, limits: SaveLimits) -> KeptState {
        let restored = self.select(access).and_then(|obstacle| match obstacle {
            Some(reason) => Ok(KeptState {
                reason: Some(reason),
                ..KeptState::of(PersistenceLevel::Workspace)
            }),
            None => self.restore_selected(access, limits),
        });
        restored.unwrap_or_else(|error| {
            if let Err(error) = self.store.rename(ARCHIVE, REFUSED) {
                tracing::error!(%error, "cannot move the archive aside");
            }
            KeptState {
                reason: Some(error.to_string()),
                ..KeptState::of(PersistenceLevel::Workspace)
            }
        })
    }

    /// Brings an archive back that an older supervisor has set aside, if this one knows its format
    /// and no other was saved since.
    fn take_back(&self) -> io::Result<()> {
        if !self.has_state() && matches!(self.open(NEWER), Ok(Some(_))) {
            self.store.rename(NEWER, ARCHIVE)?;
        }
        Ok(())
    }

    /// Sets archives aside whose format is not known, in place of an earlier one. Returns the reason.
    fn set_aside_newer(&self) -> io::Result<Option<String>> {
        let mut reason = None;
        for name in [PREVIOUS, ARCHIVE] {
            if let Err(StateError::Version(version)) = self.open(name) {
                self.store.rename(name, NEWER)?;
                reason = Some(format::newer(version));
            }
        }
        Ok(reason)
    }

    /// Makes the archive of the image the present one. Returns the reason why the present one does
    /// not fit and is set aside.
    fn select(&self, access: &StateAccess) -> Result<Option<String>, StateError> {
        let failed = StateError::io::<std::io::Error>;
        let newer = self.set_aside_newer();
        let newer = newer.map_err(failed("move the archive"))?;
        let fits =
            |header: &ArchiveHeader| !access.image.is_empty() && header.image == access.image;
        let obstacle = match self.open(ARCHIVE) {
            Ok(Some((_, header))) if fits(&header) => return Ok(None),
            Ok(Some((_, header))) => Some(image_change(&header.image, &access.image)),
            Ok(None) => newer,
            Err(error) => return Err(error),
        };
        if matches!(self.open(PREVIOUS), Ok(Some((_, header))) if fits(&header)) {
            let exchanged = self.store.exchange(PREVIOUS, ARCHIVE);
            exchanged.map_err(failed("move the archive"))?;
            return Ok(None);
        }
        if obstacle.is_some() {
            let moved = self.store.rename(ARCHIVE, PREVIOUS);
            moved.map_err(failed("move the archive"))?;
        }
        Ok(obstacle)
    }

    fn restore_selected(
        &self,
        access: &StateAccess,
        limits: SaveLimits,
    ) -> Result<KeptState, StateError> {
        let Some((file, header)) = self.open(ARCHIVE)? else {
            return Ok(KeptState::of(PersistenceLevel::Workspace));
        };
        let key = StateKey::from_text(&access.key)?;
        unpack_file(file, &header, &key, limits, &self.tree)
    }

    /// Writes an archive of all changes to another store.
    pub(super) fn copy_to(
        &self,
        file: ArchiveFile<'_>,
        limits: SaveLimits,
        deadline: Deadline,
    ) -> Result<KeptState, StateError> {
        file.write(|to| pack::pack(&self.tree, &self.list, to, limits, deadline))
    }

    /// Writes an archive of all changes, and replaces the one before it when it is complete.
    pub(super) fn save(
        &self,
        access: &StateAccess,
        limits: SaveLimits,
    ) -> Result<KeptState, StateError> {
        let saved = self.write(access, limits);
        if saved.is_err() {
            // After a full disk its blocks are needed.
            let _ = self.store.remove(TEMPORARY);
        }
        saved
    }

    fn write(&self, access: &StateAccess, limits: SaveLimits) -> Result<KeptState, StateError> {
        let deadline = Deadline::after(limits.seconds);
        let temporary = ArchiveFile {
            store: &self.store,
            name: TEMPORARY,
            level: PersistenceLevel::Root,
            access,
        };
        let kept = self.copy_to(temporary, limits, deadline)?;
        deadline.check()?;
        let committed = self
            .store
            .open_file(TEMPORARY)
            .and_then(|file| file.ok_or_else(|| ErrorKind::NotFound.into()))
            .and_then(|file| self.store.commit(&file, TEMPORARY, ARCHIVE));
        committed.map_err(StateError::io("replace the archive"))?;
        if let Err(error) = self.store.remove(PREVIOUS) {
            tracing::warn!(%error, "cannot remove the archive of another image");
        }
        Ok(kept)
    }

    fn open(&self, name: &str) -> Result<Option<(File, ArchiveHeader)>, StateError> {
        open(&self.store, name)
    }
}

/// Archive that is to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArchiveFile<'a> {
    pub(super) store: &'a Store,
    pub(super) name: &'a str,
    /// Content, to which the archive is bound.
    pub(super) level: PersistenceLevel,
    /// Key, and image that the archive fits.
    pub(super) access: &'a StateAccess,
}

impl ArchiveFile<'_> {
    /// Writes all files below a directory but those on other mounts.
    pub(super) fn write_all(
        self,
        root: &Path,
        limits: SaveLimits,
        deadline: Deadline,
    ) -> Result<KeptState, StateError> {
        let tree = Tree::open(root, &[])?;
        self.write(|to| pack::pack_all(&tree, to, limits, deadline))
    }

    /// Writes the changes in the upper directory of an overlay that is mounted as the root.
    pub(super) fn write_upper(
        self,
        upper: OwnedFd,
        limits: SaveLimits,
        deadline: Deadline,
    ) -> Result<KeptState, StateError> {
        let merged = Tree::open(Path::new("/"), &[])?;
        let upper = Tree {
            root: upper,
            excluded: merged.excluded.clone(),
        };
        self.write(|to| pack::pack_upper(&upper, &merged, to, limits, deadline))
    }

    fn write(
        self,
        pack: impl FnOnce(Sealer<File>) -> Result<(Packed, Sealer<File>), StateError>,
    ) -> Result<KeptState, StateError> {
        let failed = StateError::io::<std::io::Error>;
        let key = StateKey::from_text(&self.access.key)?;
        let header = ArchiveHeader {
            version: VERSION,
            level: self.level,
            image: self.access.image.clone(),
            salt: salt()?,
        };
        let file = self.store.create(self.name);
        let file = file.map_err(failed("create the archive"))?;
        let (packed, sealer) = pack(Sealer::new(file, &key, &header)?)?;
        let file = sealer.finish().map_err(failed("write the archive"))?;
        let bytes = file.metadata().map_err(failed("write the archive"))?.len();
        let reason = (packed.left_out > 0).then(|| {
            format!(
                "{} files are left out: their names begin with .wh., they cannot be read, or \
                 their directories are too deep",
                packed.left_out
            )
        });
        Ok(KeptState {
            level: PersistenceLevel::Root,
            bytes: Some(bytes),
            reason,
        })
    }

    /// Unpacks the archive below a directory, onto no other mount. `None` if there is none.
    pub(super) fn unpack(
        self,
        limits: SaveLimits,
        root: &Path,
        excluded: &[&Path],
    ) -> Result<Option<KeptState>, StateError> {
        let Some((file, header)) = open(self.store, self.name)? else {
            return Ok(None);
        };
        if header.level != self.level || header.image != self.access.image {
            return Err(StateError::Damaged("an archive is another one"));
        }
        let key = StateKey::from_text(&self.access.key)?;
        let tree = Tree::open(root, excluded)?;
        unpack_file(file, &header, &key, limits, &tree).map(Some)
    }
}

/// Verifies an archive, for a layer of its content. `None` if there is none.
pub(super) fn open_layer(
    store: &Store,
    name: &str,
    key: &str,
    limits: SaveLimits,
    deadline: Deadline,
) -> Result<Option<LayerArchive>, StateError> {
    let Some((file, header)) = open(store, name)? else {
        return Ok(None);
    };
    let key = StateKey::from_text(key)?;
    LayerArchive::new(file, header, key, limits, deadline).map(Some)
}

fn unpack_file(
    mut file: File,
    header: &ArchiveHeader,
    key: &StateKey,
    limits: SaveLimits,
    tree: &Tree,
) -> Result<KeptState, StateError> {
    let failed = StateError::io::<std::io::Error>;
    let start = file.stream_position().map_err(failed("read the archive"))?;
    let bytes = file.metadata().map_err(failed("read the archive"))?.len();
    unpack::check(Opener::new(&mut file, key, header)?, limits)?;
    let rewound = file.seek(SeekFrom::Start(start));
    rewound.map_err(failed("read the archive"))?;
    let left_out = unpack::unpack(Opener::new(&mut file, key, header)?, tree)?;
    let reason = (left_out > 0)
        .then(|| format!("{left_out} files are left out: the Pod has mounts in their place"));
    Ok(KeptState {
        level: header.level.min(PersistenceLevel::Root),
        bytes: Some(bytes),
        reason,
    })
}

/// Opens an archive and reads its header.
fn open(store: &Store, name: &str) -> Result<Option<(File, ArchiveHeader)>, StateError> {
    let file = store.open_file(name);
    let Some(mut file) = file.map_err(StateError::io("open the archive"))? else {
        return Ok(None);
    };
    let header = ArchiveHeader::read(&mut file)?;
    Ok(Some((file, header)))
}

fn salt() -> Result<[u8; SALT_BYTES], StateError> {
    let mut salt = [0; SALT_BYTES];
    let filled = rustix::rand::getrandom(&mut salt, GetRandomFlags::empty());
    match filled {
        Ok(SALT_BYTES) => Ok(salt),
        Ok(_) => Err(StateError::Key),
        Err(error) => Err(StateError::io("read random bytes")(error)),
    }
}

#[cfg(test)]
mod tests;
