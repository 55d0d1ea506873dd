//! Removal of what no name and no process needs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::listing::files;
use super::lock::Lock;
use super::{ImageRecord, ImageStore, StoreError};
use crate::Digest;

/// Age of an unfinished download that is given up.
const PARTIAL_AGE: Duration = Duration::from_hours(24);

/// Outcome of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    /// Images that are gone.
    pub images: usize,
    /// Bytes of the files that are gone.
    pub bytes: u64,
}

impl std::ops::AddAssign for Freed {
    fn add_assign(&mut self, other: Self) {
        self.images += other.images;
        self.bytes += other.bytes;
    }
}

impl ImageStore {
    /// Removes images that have no name and are not in use, with their blobs and layers. Waits for
    /// running pulls.
    pub fn sweep(&self) -> Result<Freed, StoreError> {
        let _alone = Lock::exclusive(&self.root.join("lock"))?;
        self.sweep_alone(PARTIAL_AGE)
    }

    /// As [`Self::sweep`], unless a pull is running.
    pub(crate) fn try_sweep(&self) -> Result<Freed, StoreError> {
        self.try_sweep_older(PARTIAL_AGE)
    }

    /// As [`Self::try_sweep`], and removes all unfinished downloads.
    pub(crate) fn try_sweep_parts(&self) -> Result<Freed, StoreError> {
        self.try_sweep_older(Duration::ZERO)
    }

    fn try_sweep_older(&self, age: Duration) -> Result<Freed, StoreError> {
        match Lock::try_exclusive(&self.root.join("lock"))? {
            Some(_alone) => self.sweep_alone(age),
            None => Ok(Freed::default()),
        }
    }

    /// Directory of the store, and the bytes that are free on its disk.
    pub(crate) fn free_space(&self) -> Result<(PathBuf, u64), StoreError> {
        let found = rustix::fs::statvfs(&*self.root);
        let found = found.map_err(|error| StoreError::io(&self.root)(error.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        Ok((self.root.to_path_buf(), free))
    }

    /// Keeps unfinished downloads that are younger than `age`.
    fn sweep_alone(&self, age: Duration) -> Result<Freed, StoreError> {
        let named: HashSet<Digest> = self.tags()?.iter().map(|(_, tag)| tag.manifest).collect();
        let mut freed = Freed::default();
        for left in files(&self.staging())? {
            freed.bytes += remove_tree(&left)?;
        }
        let (mut blobs, mut layers) = (HashSet::new(), HashSet::new());
        for path in files(&self.root.join("images"))? {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let Some(record) = ImageRecord::read(&path)? else {
                continue;
            };
            let lock = self.image_lock(&record.manifest);
            if !named.contains(&record.manifest)
                && let Some(_unused) = Lock::try_exclusive(&lock)?
            {
                remove(&path)?;
                remove(&lock)?;
                freed.images += 1;
                continue;
            }
            blobs.extend(record.blobs().map(|digest| OsString::from(digest.hex())));
            for chain_id in &record.chain_ids {
                let name = chain_id.short();
                layers.insert(OsString::from(format!("{name}.json")));
                layers.insert(OsString::from(name));
            }
        }
        freed.bytes += self.keep_only("layers", &layers, age)?;
        freed.bytes += self.keep_only("blobs", &blobs, age)?;
        Ok(freed)
    }

    /// Removes the names of all images that are not in use, and sweeps.
    pub fn prune(&self) -> Result<Freed, StoreError> {
        for image in self.list()? {
            if !image.in_use {
                self.remove_name(&image.reference)?;
            }
        }
        self.sweep()
    }

    /// Removes the images whose last use is longest ago until the store takes at most `limit`
    /// bytes, or until all that are left are in use.
    pub fn shrink(&self, limit: u64) -> Result<Freed, StoreError> {
        let mut freed = Freed::default();
        if self.bytes()? <= limit {
            return Ok(freed);
        }
        freed += self.sweep()?;
        let mut images = self.list()?;
        images.retain(|image| !image.in_use);
        images.sort_by_key(|image| image.last_used);
        for image in images {
            if self.bytes()? <= limit {
                break;
            }
            self.remove_name(&image.reference)?;
            freed += self.sweep()?;
        }
        Ok(freed)
    }

    /// Bytes of all blobs and unpacked layers of complete images.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let (mut blobs, mut total) = (HashSet::new(), 0);
        for path in files(&self.root.join("images"))? {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let Some(record) = ImageRecord::read(&path)? else {
                continue;
            };
            total += record.unpacked_bytes;
            let layers = record.layers.iter();
            let new = layers.filter(|layer| blobs.insert(layer.digest));
            total += new.map(|layer| layer.size).sum::<u64>();
        }
        Ok(total)
    }

    fn remove_name(&self, reference: &str) -> Result<(), StoreError> {
        if let Ok(reference) = reference.parse() {
            self.remove(&reference)?;
        }
        Ok(())
    }

    fn keep_only(
        &self,
        directory: &str,
        keep: &HashSet<OsString>,
        age: Duration,
    ) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for path in files(&self.root.join(directory))? {
            let name = path.file_name().unwrap_or_default();
            if keep.contains(name) || is_part_younger(&path, age) {
                continue;
            }
            // Under another name first, so that a crash leaves no layer with missing files.
            let doomed = self.staging().join(name);
            fs::rename(&path, &doomed).map_err(StoreError::io(&path))?;
            bytes += remove_tree(&doomed)?;
        }
        Ok(bytes)
    }
}

/// True for a download that may be resumed.
fn is_part_younger(path: &Path, limit: Duration) -> bool {
    let is_part = path
        .extension()
        .is_some_and(|extension| extension == "part");
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified.map(|modified| SystemTime::now().duration_since(modified));
    is_part && matches!(age, Ok(Ok(age)) if age < limit)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(path)(error)),
        _ => Ok(()),
    }
}

/// Removes a file or tree; bytes of its files. Links are not followed.
fn remove_tree(path: &Path) -> Result<u64, StoreError> {
    let failed = StoreError::io;
    let metadata = fs::symlink_metadata(path).map_err(failed(path))?;
    if !metadata.is_dir() {
        fs::remove_file(path).map_err(failed(path))?;
        return Ok(metadata.len());
    }
    let bytes = tree_bytes(path);
    crate::remove_tree(path).map_err(failed(path))?;
    Ok(bytes)
}

fn tree_bytes(path: &Path) -> u64 {
    let mut bytes = 0;
    let mut left: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => left.push(entry.path()),
                Ok(metadata) => bytes += metadata.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}
