//! Unpacked images. Each container gets a copy, with shared blocks where the file system can:
//! bubblewrap of Debian 12 cannot mount an overlay.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::super::mount::Mount;
use super::users::{Account, Users};
use super::{ImageDefaults, ImageError, PodIdentity, etc_files};

/// Process part of an OCI runtime configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Bundle {
    process: Process,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Process {
    args: Vec<String>,
    env: Vec<String>,
    cwd: Option<PathBuf>,
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    uid: u32,
    gid: u32,
}

/// Root inside `image`: the directory itself, or the `rootfs` of an OCI bundle.
pub(super) fn root_of(image: &Path) -> PathBuf {
    let rootfs = image.join("rootfs");
    if image.join("config.json").is_file() && rootfs.is_dir() {
        rootfs
    } else {
        image.to_owned()
    }
}

pub(super) fn defaults(image: &Path) -> Result<ImageDefaults, ImageError> {
    let failed = |source| ImageError::Directory {
        path: image.to_owned(),
        source,
    };
    fs::read_dir(image).map_err(failed)?;
    let mut defaults = ImageDefaults {
        accounts: accounts(&root_of(image)),
        ..ImageDefaults::host()
    };
    let Ok(text) = fs::read(image.join("config.json")) else {
        return Ok(defaults);
    };
    let bundle: Bundle = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
    let process = bundle.process;
    let pairs = process.env.iter().filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
    defaults.environment.extend(pairs);
    let mut entrypoint = process.args;
    defaults.arguments = entrypoint.split_off(entrypoint.len().min(1));
    defaults.entrypoint = entrypoint;
    defaults.directory = process.cwd.unwrap_or_else(|| "/".into());
    (defaults.uid, defaults.gid) = (process.user.uid, process.user.gid);
    Ok(defaults)
}

fn accounts(root: &Path) -> BTreeMap<u32, Account> {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    Users::parse(&text("etc/passwd"), &text("etc/group")).accounts()
}

pub(super) fn root(
    image: &Path,
    scratch: &Path,
    pod_identity: &PodIdentity,
) -> Result<Vec<Mount>, ImageError> {
    let root = scratch.join("root");
    copy(image, &root)?;
    let own = root.join("etc");
    if fs::symlink_metadata(&own).is_ok_and(|metadata| metadata.is_dir()) {
        etc_files::pod(&own, pod_identity)?;
    }
    Ok(vec![Mount::Bind {
        from: root,
        to: "/".into(),
        writable: true,
    }])
}

/// Copies the root of the image to `to`.
pub(super) fn copy(image: &Path, to: &Path) -> Result<(), ImageError> {
    let output = Command::new("cp")
        .args(["-a", "--reflink=auto", "--"])
        .args([root_of(image).as_path(), to])
        .output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(ImageError::Copy(message.trim().to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_come_from_oci_config() {
        let image = tempfile::tempdir().unwrap();
        fs::create_dir_all(image.path().join("rootfs/etc")).unwrap();
        fs::write(
            image.path().join("rootfs/etc/passwd"),
            "u:x:7:8::/home/u:/bin/sh\n",
        )
        .unwrap();
        let config = r#"{"process": {"args": ["run"], "env": ["A=b=c"], "cwd": "/w",
            "user": {"uid": 7, "gid": 8}}, "root": {"path": "rootfs"}}"#;
        fs::write(image.path().join("config.json"), config).unwrap();
        assert!(defaults(Path::new("/nonexistent/image")).is_err());
        let defaults = defaults(image.path()).unwrap();
        assert_eq!(defaults.entrypoint, ["run"]);
        assert!(defaults.environment.contains(&("A".into(), "b=c".into())));
        assert_eq!((defaults.uid, defaults.group_of(7)), (7, 8));
        assert_eq!(defaults.home_of(7), "/home/u");
        assert_eq!(root_of(image.path()), image.path().join("rootfs"));
    }
}
