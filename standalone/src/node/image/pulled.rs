//! Pulled images: process defaults from the configuration, users from the image's own files, and a
//! root whose changes go to a private directory.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use images::Image;
use rustix::process::Signal;

use super::super::mount::{MARKER_DIR, Mount, OverlayRoot};
use super::super::overlay::UPPER;
use super::users::Users;
use super::{ImageDefaults, ImageError, PodIdentity, etc_files};

/// Mount points that every container has; links there could lead out of the image.
const MOUNT_POINTS: [&str; 4] = ["/proc", "/dev", "/etc", MARKER_DIR];

pub(super) fn defaults(image: &Image) -> Result<ImageDefaults, ImageError> {
    let process = &image.config.config;
    let users = Users::read(image);
    let (uid, gid) = users.resolve(&process.user)?;
    let host = ImageDefaults::host();
    let mut environment = host.environment;
    let pairs = process.env.iter().filter_map(|pair| pair.split_once('='));
    environment.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let directory = Some(process.working_dir.as_str()).filter(|path| path.starts_with('/'));
    let name = process.user.split(':').next().unwrap_or_default();
    Ok(ImageDefaults {
        uid,
        gid,
        user_name: (!name.is_empty() && name.parse::<u32>().is_err()).then(|| name.to_owned()),
        entrypoint: process.entrypoint.clone(),
        arguments: process.cmd.clone(),
        environment,
        directory: directory.unwrap_or("/").into(),
        stop_signal: stop_signal(&process.stop_signal)?,
        accounts: users.accounts(),
    })
}

/// Builds the root in the empty directory `scratch`. `owner` gives the host's id of an id inside.
pub(super) fn root(
    image: &Image,
    scratch: &Path,
    pod_identity: &PodIdentity,
    owner: impl Fn(u32) -> u32,
) -> Result<Vec<Mount>, ImageError> {
    for path in MOUNT_POINTS {
        if image.resolve(Path::new(path))? != Path::new(path) {
            return Err(ImageError::Link(path.into()));
        }
    }
    let upper = scratch.join(UPPER);
    create_upper(image, &upper, &owner)?;
    let etc = upper.join("etc");
    let image_etc = image.find(Path::new("/etc")).and_then(fs::metadata).ok();
    directory(&etc, image_etc.as_ref(), &owner)?;
    etc_files::pod(&etc, pod_identity)?;
    for file in fs::read_dir(&etc)? {
        chown(file?.path(), Some(owner(0)), Some(owner(0)))?;
    }
    let overlay = Mount::Overlay(overlay(image, scratch, None));
    let volumes = image.config.config.volumes.keys();
    let volumes = volumes.map(|path| {
        Ok(Mount::Dir {
            at: image.resolve(Path::new(path))?,
        })
    });
    let volumes: io::Result<Vec<Mount>> = volumes.collect();
    Ok([vec![overlay], volumes?].concat())
}

/// Creates the directory of the changes, with mode and owner of the image's root.
fn create_upper(image: &Image, upper: &Path, owner: impl Fn(u32) -> u32) -> io::Result<()> {
    let top = image.layers.last().map(fs::metadata).transpose()?;
    directory(upper, top.as_ref(), owner)
}

/// Overlay of the image, with changes in `scratch` or in the directory of kept ones.
fn overlay(image: &Image, scratch: &Path, kept: Option<&Path>) -> OverlayRoot {
    let layers = image.layers.iter().filter_map(|layer| layer.file_name());
    let store = image.layers.first().and_then(|layer| layer.parent());
    OverlayRoot {
        store: store.unwrap_or(Path::new("/")).to_owned(),
        layers: layers.map(PathBuf::from).collect(),
        changes: kept.unwrap_or(scratch).to_owned(),
        scratch: scratch.to_owned(),
        is_kept: kept.is_some(),
    }
}

/// Begins changes that are kept, in the empty directory `kept`.
pub(super) fn begin_kept(image: &Image, kept: &Path, owner: impl Fn(u32) -> u32) -> io::Result<()> {
    create_upper(image, &kept.join(UPPER), owner)
}

/// Root with kept changes. The node finds the mount points when it is mounted.
pub(super) fn kept_root(image: &Image, kept: &Path, scratch: &Path) -> Vec<Mount> {
    let volumes = image.config.config.volumes.keys();
    let volumes = volumes.map(|path| Mount::Dir { at: path.into() });
    let overlay = Mount::Overlay(overlay(image, scratch, Some(kept)));
    [vec![overlay], volumes.collect()].concat()
}

/// Creates a directory with mode and owner of the image's.
fn directory(
    path: &Path,
    of_image: Option<&fs::Metadata>,
    owner: impl Fn(u32) -> u32,
) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let (mode, uid, gid) = of_image.map_or((0o755, 0, 0), |found| {
        (found.mode() & 0o7777, found.uid(), found.gid())
    });
    chown(path, Some(owner(uid)), Some(owner(gid)))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Signal by number, or by name with or without `SIG`.
fn stop_signal(text: &str) -> Result<Signal, ImageError> {
    if text.is_empty() {
        return Ok(Signal::TERM);
    }
    let named = |name: &str| name.parse::<nix::sys::signal::Signal>().ok();
    let by_name = || named(text).or_else(|| named(&format!("SIG{text}")));
    let number = text
        .parse()
        .ok()
        .or_else(|| by_name().map(|signal| signal as i32));
    let signal = number.and_then(Signal::from_named_raw);
    signal.ok_or_else(|| ImageError::StopSignal(text.chars().take(40).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_signal_is_a_name_or_number() {
        for (text, signal) in [
            ("", Signal::TERM),
            ("SIGINT", Signal::INT),
            ("QUIT", Signal::QUIT),
            ("10", Signal::USR1),
        ] {
            assert_eq!(stop_signal(text).unwrap(), signal, "{text}");
        }
        for bad in ["SIGNOTHING", "0", "-1", "1000"] {
            assert!(stop_signal(bad).is_err(), "{bad}");
        }
    }
}
