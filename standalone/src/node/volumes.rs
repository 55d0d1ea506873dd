//! Volumes of a Pod as host directories, and their mounts.

mod group;
mod subpath;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, ImageVolumeSource, KeyToPath, Pod, Volume,
};

pub(crate) use self::subpath::{open_inside, relative};

use self::group::hand_over;
use super::Node;
use super::container_user::volume_group;
use super::environment::{DataRef, EnvironmentError, Variables};
use super::executor_image;
use super::image::{Image, ImageSource};
use super::mount::Mount;
use super::paths::Paths;

/// Mode without `fsGroup`: every user of the container may write, as on a cluster.
const OPEN: u32 = 0o777;
/// Mode with `fsGroup`: members may write, and new files inherit the group.
const GROUP: u32 = 0o2775;

#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("volume {0} has an unsupported type")]
    Kind(String),
    #[error("volume {0}: image {1:?} cannot be a volume here, only the executor's image can")]
    Image(String, String),
    #[error("volume {0} is not defined")]
    Undefined(String),
    #[error(
        "hostPath {0:?} is refused by this node, which mounts directories of image builds only"
    )]
    HostPath(String),
    #[error("bad path {0:?} in a volume")]
    Path(String),
    #[error("volume {0}: {1}")]
    Io(String, io::Error),
    #[error(transparent)]
    Data(#[from] EnvironmentError),
}

#[derive(Debug, Clone)]
pub(crate) struct ProvidedVolume {
    directory: PathBuf,
    read_only: bool,
    /// False if its files have ids of the container's user namespace.
    mapped: bool,
    /// Uid of its claim.
    claim: Option<String>,
}

impl ProvidedVolume {
    /// Uid of the claim, if containers may write.
    pub(crate) fn writable_claim(&self) -> Option<&str> {
        self.claim.as_deref().filter(|_| !self.read_only)
    }
}

/// Volumes of one Pod by name.
pub(crate) type Volumes = BTreeMap<String, ProvidedVolume>;

/// Creates the volumes of `pod`. Waits for unbound claims.
pub(crate) async fn provide(node: &Node, pod: &Pod) -> Result<Volumes, VolumeError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let group = volume_group(&spec).filter(|_| node.user.is_root());
    let mut volumes = Volumes::new();
    for volume in spec.volumes.iter().flatten() {
        let provided = provide_one(node, pod, group, volume).await?;
        volumes.insert(volume.name.clone(), provided);
    }
    Ok(volumes)
}

async fn provide_one(
    node: &Node,
    pod: &Pod,
    group: Option<u32>,
    volume: &Volume,
) -> Result<ProvidedVolume, VolumeError> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let failed = |error| VolumeError::Io(volume.name.clone(), error);
    let mut directory = node.paths.pod_volumes(uid).join(&volume.name);
    let (mut read_only, mut mapped) = (false, true);
    let mut bound = None;
    if let Some(source) = &volume.empty_dir {
        directory = empty_dir(&node.paths, uid, &volume.name, source);
        if let Some(users) = node.users_of(pod).filter(|_| node.is_image_build(pod)) {
            // An overlay cannot have a mapped mount as its upper directory.
            mapped = false;
            make_shared(&directory, group.map(|group| users.outside(group))).map_err(failed)?;
            let root = users.outside(0);
            lchown(&directory, Some(root), group.is_none().then_some(root)).map_err(failed)?;
        } else {
            make_shared(&directory, group).map_err(failed)?;
        }
    } else if let Some(source) = &volume.host_path {
        directory = host_path(node, pod, &source.path)?;
    } else if let Some(claim) = &volume.persistent_volume_claim {
        let claim_uid = node.claims.bound(namespace, &claim.claim_name).await;
        directory = node.paths.volumes().join(&claim_uid);
        bound = Some(claim_uid);
        read_only = claim.read_only == Some(true);
        make_shared(&directory, group).map_err(failed)?;
    } else if let Some(image) = &volume.image {
        directory = image_content(node, volume, image)?;
        read_only = true;
    } else {
        let (source, items, mode) = if let Some(map) = &volume.config_map {
            let source = DataRef::config_map(&map.name, map.optional);
            (source, &map.items, map.default_mode)
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let source = DataRef::secret(name, secret.optional);
            (source, &secret.items, secret.default_mode)
        } else {
            return Err(VolumeError::Kind(volume.name.clone()));
        };
        let data = source.read(&node.client, namespace).await?;
        let mode = mode_or(mode, 0o444);
        let files = projected(data.unwrap_or_default(), items.as_deref(), mode)?;
        write_files(&directory, &files, group).map_err(failed)?;
        read_only = true;
    }
    Ok(ProvidedVolume {
        directory,
        read_only,
        mapped,
        claim: bound,
    })
}

/// Directory of the host, for Pods that build images.
fn host_path(node: &Node, pod: &Pod, path: &str) -> Result<PathBuf, VolumeError> {
    let builds = node.config.image_builds.as_ref();
    let builds = builds.filter(|_| node.is_image_build(pod));
    let builds = builds.ok_or_else(|| VolumeError::HostPath(path.to_owned()))?;
    let directory = builds.host_path(path)?;
    match directory.metadata() {
        Ok(found) if found.is_dir() => Ok(directory),
        Ok(_) => Err(VolumeError::HostPath(path.to_owned())),
        Err(error) => Err(VolumeError::Io(path.to_owned(), error)),
    }
}

/// Content of an image that is on this machine without a registry.
fn image_content(
    node: &Node,
    volume: &Volume,
    source: &ImageVolumeSource,
) -> Result<PathBuf, VolumeError> {
    let reference = source.reference.as_deref().unwrap_or_default();
    match node.config.images.resolve(reference) {
        Ok(ImageSource::Local(Image::Executor)) => executor_image::content(&node.paths)
            .map_err(|error| VolumeError::Io(volume.name.clone(), error)),
        _ => Err(VolumeError::Image(
            volume.name.clone(),
            reference.to_owned(),
        )),
    }
}

pub(crate) fn empty_dir(
    paths: &Paths,
    uid: &str,
    name: &str,
    source: &EmptyDirVolumeSource,
) -> PathBuf {
    match source.medium.as_deref() {
        Some("Memory") => paths.memory().join(uid).join(name),
        _ => paths.pod_volumes(uid).join(name),
    }
}

fn mode_or(mode: Option<i32>, default: u32) -> u32 {
    let mode = mode.and_then(|mode| u32::try_from(mode).ok());
    mode.unwrap_or(default)
}

/// Creates a directory that containers may write. Its parents are closed to other users.
pub(crate) fn make_shared(directory: &Path, group: Option<u32>) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700).create(parent)?;
    }
    match fs::create_dir(directory) {
        Ok(()) => fs::set_permissions(directory, fs::Permissions::from_mode(OPEN))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let Some(group) = group else { return Ok(()) };
    // As with `fsGroupChangePolicy: OnRootMismatch`, a large workspace is walked only once.
    let metadata = fs::symlink_metadata(directory)?;
    if metadata.gid() == group && metadata.mode() & 0o7777 == GROUP {
        return Ok(());
    }
    hand_over(directory, group)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(GROUP))
}

/// File of a `ConfigMap` or `Secret` volume.
#[derive(Debug, PartialEq, Eq)]
struct ProjectedFile {
    path: PathBuf,
    mode: u32,
    bytes: Vec<u8>,
}

fn projected(
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: u32,
) -> Result<Vec<ProjectedFile>, VolumeError> {
    let file = |path: &str, mode, bytes| {
        let path = subpath::relative(path)?;
        Ok(ProjectedFile { path, mode, bytes })
    };
    let Some(items) = items else {
        let files = data.into_iter().map(|(key, bytes)| file(&key, mode, bytes));
        return files.collect();
    };
    let files = items.iter().map(|item| {
        let bytes = data.remove(&item.key);
        let bytes = bytes.ok_or_else(|| VolumeError::Path(item.key.clone()))?;
        file(&item.path, mode_or(item.mode, mode), bytes)
    });
    files.collect()
}

/// Replaces the files; containers see them read-only.
fn write_files(directory: &Path, files: &[ProjectedFile], group: Option<u32>) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(directory)?;
    for file in files {
        let path = directory.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.bytes)?;
        let shared = if group.is_some() { 0o040 } else { 0 };
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode | shared))?;
        if group.is_some() {
            lchown(&path, None, group)?;
        }
    }
    Ok(())
}

/// Mounts of `container`, outer ones first.
pub(crate) fn volume_mounts(
    container: &Container,
    volumes: &Volumes,
    variables: &Variables,
) -> Result<Vec<Mount>, VolumeError> {
    let mut mounts = Vec::new();
    let mut all: Vec<_> = container.volume_mounts.iter().flatten().collect();
    all.sort_by_key(|wanted| Path::new(&wanted.mount_path).components().count());
    for wanted in all {
        let volume = volumes.get(&wanted.name);
        let volume = volume.ok_or_else(|| VolumeError::Undefined(wanted.name.clone()))?;
        let below = match (&wanted.sub_path, &wanted.sub_path_expr) {
            (Some(path), _) => path.clone(),
            (None, Some(expression)) => variables.expand(expression),
            (None, None) => String::new(),
        };
        mounts.push(Mount::Volume {
            below: subpath::inside(&volume.directory, &below, volume.read_only)?,
            directory: volume.directory.clone(),
            to: Path::new("/").join(&wanted.mount_path),
            writable: !(volume.read_only || wanted.read_only == Some(true)),
            mapped: volume.mapped,
        });
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_is_world_writable_below_private_parent() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("pods/uid/volumes/work");
        make_shared(&directory, None).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, OPEN);
        let parent = fs::metadata(directory.parent().unwrap()).unwrap();
        assert_eq!(parent.mode() & 0o777, 0o700);
    }

    #[test]
    fn projected_keys_become_files_with_modes() {
        let data = BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".into(), b"2".to_vec())]);
        let item = |path: &str| {
            let item = KeyToPath {
                key: "b".into(),
                path: path.into(),
                mode: Some(0o444),
                ..KeyToPath::default()
            };
            projected(data.clone(), Some(&[item]), 0o400)
        };
        assert_eq!(projected(data.clone(), None, 0o400).unwrap().len(), 2);
        let file = ProjectedFile {
            path: "x/y".into(),
            mode: 0o444,
            bytes: b"2".to_vec(),
        };
        assert_eq!(item("x/y").unwrap(), [file]);
        assert!(item("../y").is_err());
    }
}
