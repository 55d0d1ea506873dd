//! Root by an overlay: changes are on the volume at any time. The upper directory fits one image.

mod meta;
mod mount;
mod target;
mod usage;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crds::contract::persistence::{KeptState, PersistenceLevel, SaveLimits, StateAccess};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, stat};

use self::meta::{OverlayMeta, VERSION};
use self::mount::OverlayDirectories;
use super::error::StateError;
use super::store::{Store, open_directory};
use super::{format, image_change, joined};

/// Directory with `u` (upper), `w` (work), `m` (mount point) and `meta.json`.
const OVERLAY: &str = "overlay";
/// The same of another image, until the next save.
const PREVIOUS: &str = "overlay.previous";
/// The same of a format that an older supervisor did not know. No save removes it.
const NEWER: &str = "overlay.newer";

/// Mounts an overlay with changes below `volume` as the root of this container, as a supervisor
/// does.
pub(crate) fn check(volume: &Path) -> anyhow::Result<()> {
    OverlayRoot::prepare(Store::open(volume)?, volume.to_owned())?;
    Ok(())
}

#[derive(Debug)]
pub(super) struct OverlayRoot {
    store: Store,
    /// Mount point of the store in the image's root.
    path: PathBuf,
    /// The directory `overlay` once it is mounted, or the reason of a failure. Empty as long as the
    /// changes of an earlier Pod wait for the image.
    mounted: OnceLock<Result<OwnedFd, String>>,
}

impl OverlayRoot {
    /// Mounts an empty overlay at once. Changes of an earlier Pod wait for the image.
    pub(super) fn prepare(store: Store, path: PathBuf) -> Result<Self, StateError> {
        let failed = StateError::io::<io::Error>;
        let root = Self {
            store,
            path,
            mounted: OnceLock::new(),
        };
        root.take_back().map_err(failed("read the store"))?;
        let has_meta = root
            .meta(OVERLAY)
            .map_err(failed("read the store"))?
            .is_some();
        if !has_meta && !root.store.has(PREVIOUS) {
            // An overlay without an image never had a sandbox.
            root.store
                .remove(OVERLAY)
                .map_err(failed("clear the store"))?;
            root.mount()?;
        }
        Ok(root)
    }

    pub(super) fn has_state(&self) -> bool {
        self.mounted.get().is_none()
    }

    /// Mounts the overlay of this image, or begins a new one.
    pub(super) fn restore(&self, access: &StateAccess) -> KeptState {
        let restored = self.try_restore(access);
        restored.unwrap_or_else(|error| KeptState {
            reason: Some(error.to_string()),
            ..KeptState::of(PersistenceLevel::Workspace)
        })
    }

    fn try_restore(&self, access: &StateAccess) -> Result<KeptState, StateError> {
        let failed = StateError::io::<io::Error>;
        let mut restored = KeptState::of(PersistenceLevel::Workspace);
        match self.mounted.get() {
            Some(Err(reason)) => {
                restored.reason = Some(reason.clone());
                return Ok(restored);
            }
            Some(Ok(_)) => {}
            None => {
                let selected = self.select(access).map_err(failed("read the store"));
                let (has_state, reason) = selected.inspect_err(|error| self.fail(error))?;
                if has_state {
                    restored.level = PersistenceLevel::Root;
                }
                restored.reason = reason;
                self.mount().inspect_err(|error| self.fail(error))?;
            }
        }
        self.write_meta(&access.image)
            .map_err(failed("write the store"))?;
        Ok(restored)
    }

    /// Keeps the reason why nothing is mounted.
    fn fail(&self, error: &StateError) {
        let _ = self.mounted.set(Err(error.to_string()));
    }

    /// Brings changes back that an older supervisor has set aside, if this one knows their format
    /// and none were kept since: those of an overlay are kept from its first start.
    fn take_back(&self) -> io::Result<()> {
        let is_known = |meta: &OverlayMeta| meta.version <= VERSION;
        let set_aside = self.meta(NEWER)?;
        if set_aside.as_ref().is_some_and(is_known)
            && self.meta(OVERLAY)?.is_none()
            && !self.store.has(PREVIOUS)
        {
            self.store.rename(NEWER, OVERLAY)?;
        }
        Ok(())
    }

    /// Sets changes aside whose format is not known, in place of earlier ones. Returns the reason.
    fn set_aside_newer(&self) -> io::Result<Option<String>> {
        let mut reason = None;
        for name in [PREVIOUS, OVERLAY] {
            let meta = self.meta(name)?;
            if let Some(meta) = meta.filter(|meta| meta.version > VERSION) {
                self.store.rename(name, NEWER)?;
                reason = Some(format::newer(meta.version));
            }
        }
        Ok(reason)
    }

    /// Makes the overlay of the image the present one. Returns whether there is one, and the reason
    /// why others are set aside.
    fn select(&self, access: &StateAccess) -> io::Result<(bool, Option<String>)> {
        let newer = self.set_aside_newer()?;
        let fits = |meta: &OverlayMeta| !access.image.is_empty() && meta.image == access.image;
        let present = self.meta(OVERLAY)?;
        if present.as_ref().is_some_and(fits) {
            return Ok((true, newer));
        }
        if self.meta(PREVIOUS)?.as_ref().is_some_and(fits) {
            self.store.exchange(PREVIOUS, OVERLAY)?;
            return Ok((true, newer));
        }
        let Some(meta) = present else {
            self.store.remove(OVERLAY)?;
            return Ok((false, newer));
        };
        self.store.rename(OVERLAY, PREVIOUS)?;
        let reason = image_change(&meta.image, &access.image);
        Ok((false, Some(joined(reason, newer))))
    }

    fn mount(&self) -> Result<(), StateError> {
        let failed = StateError::io::<io::Error>;
        let overlay = self
            .store
            .subdirectory(OVERLAY)
            .map_err(failed("open the overlay"))?;
        let directory = |name| {
            let made = rustix::fs::mkdirat(&overlay, name, Mode::RWXU);
            if let Err(error) = made
                && error != rustix::io::Errno::EXIST
            {
                return Err(error.into());
            }
            open_directory(overlay.as_fd(), name)
        };
        let is_new = self
            .meta(OVERLAY)
            .map_err(failed("read the store"))?
            .is_none();
        let directories = OverlayDirectories {
            upper: directory("u").map_err(failed("open the overlay"))?,
            work: directory("w").map_err(failed("open the overlay"))?,
            mount: directory("m").map_err(failed("open the overlay"))?,
        };
        if is_new {
            copy_root(&directories.upper).map_err(failed("set up the overlay"))?;
        }
        mount::enter(&directories, &self.path).map_err(|error| {
            tracing::error!(%error, "cannot mount the root");
            StateError::io("mount the root")(io::Error::other(error))
        })?;
        let _ = self.mounted.set(Ok(overlay));
        Ok(())
    }

    /// Opens the upper directory; `None` if it is not mounted.
    pub(super) fn upper(&self) -> Result<Option<OwnedFd>, StateError> {
        let Some(Ok(overlay)) = self.mounted.get() else {
            return Ok(None);
        };
        let upper = open_directory(overlay.as_fd(), "u");
        upper.map(Some).map_err(StateError::io("open the overlay"))
    }

    /// Makes all changes durable. There is no limit on them: the volume has them already.
    pub(super) fn save(&self, image: &str, limits: SaveLimits) -> Result<KeptState, StateError> {
        let failed = StateError::io::<io::Error>;
        let overlay = match self.mounted.get() {
            Some(Ok(overlay)) => overlay,
            not_mounted => {
                let failure = not_mounted.and_then(|mounted| mounted.as_ref().err());
                return Ok(KeptState {
                    reason: failure.cloned(),
                    ..KeptState::of(PersistenceLevel::Workspace)
                });
            }
        };
        let synced = rustix::fs::syncfs(overlay);
        synced.map_err(StateError::io("write the changes to the volume"))?;
        self.write_meta(image).map_err(failed("write the store"))?;
        if let Err(error) = self.store.remove(PREVIOUS) {
            tracing::warn!(%error, "cannot remove the changes of another image");
        }
        let upper = open_directory(overlay.as_fd(), "u").ok();
        let usage = upper.and_then(|upper| usage::measure(upper.as_fd()));
        let reason = usage.and_then(|usage| {
            let bytes = (usage.bytes > limits.bytes).then_some(StateError::Bytes(limits.bytes));
            let files = (usage.files > limits.files).then_some(StateError::Files(limits.files));
            let error = bytes.or(files)?;
            Some(format!("{error}; all are kept"))
        });
        Ok(KeptState {
            level: PersistenceLevel::Root,
            bytes: usage.map(|usage| usage.bytes),
            reason,
        })
    }

    fn meta(&self, name: &str) -> io::Result<Option<OverlayMeta>> {
        match open_directory(self.store.descriptor(), name) {
            Ok(directory) => OverlayMeta::read(directory.as_fd()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write_meta(&self, image: &str) -> io::Result<()> {
        let Some(Ok(overlay)) = self.mounted.get() else {
            return Ok(());
        };
        OverlayMeta::new(image).write(overlay.as_fd())
    }
}

/// Gives a new upper directory mode and owner of the image's root, which it replaces.
fn copy_root(upper: &OwnedFd) -> io::Result<()> {
    let root = stat(c"/")?;
    let (uid, gid) = (Uid::from_raw(root.st_uid), Gid::from_raw(root.st_gid));
    fchown(upper, Some(uid), Some(gid))?;
    Ok(fchmod(upper, Mode::from_raw_mode(root.st_mode & 0o7777))?)
}
