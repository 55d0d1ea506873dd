//! Places of a container's mounts in a kept root.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{MountPointError, PointKind, RootTree};
use crate::node::mount::{MARKER_DIR, Mount};

/// Mount points of bubblewrap in every root.
const OWN_POINTS: [&str; 3] = ["/proc", "/dev", MARKER_DIR];

/// Mount point as the Pod names it, and its place without links.
struct Place {
    wanted: PathBuf,
    found: PathBuf,
}

/// Moves all mounts to places without links. A mount point inside of another mount moves with it.
pub(crate) fn place(
    tree: &RootTree,
    root: &mut Vec<Mount>,
    volumes: &mut [Mount],
) -> Result<(), MountPointError> {
    let mut places = Vec::new();
    for path in OWN_POINTS.map(PathBuf::from) {
        let found = tree.provide(&path, PointKind::Directory)?;
        if found != path {
            return Err(unusable(&path, "is a link, where this node mounts"));
        }
        let wanted = path;
        places.push(Place { wanted, found });
    }
    let (directories, others) = root.drain(..).partition(is_directory);
    *root = others;
    for mount in root.iter_mut().chain(volumes) {
        let (Mount::Bind { from, to, .. } | Mount::Host { from, to, .. }) = mount else {
            continue;
        };
        let wanted = plain(to);
        if wanted == Path::new("/") {
            continue;
        }
        if let Some(inside) = inside_another(&places, &wanted) {
            *to = inside;
            continue;
        }
        let found = tree.provide(&wanted, kind_of(from)?)?;
        to.clone_from(&found);
        places.push(Place { wanted, found });
    }
    refuse_detours(&places)?;
    for directory in directories {
        let path = plain(directory.path());
        if inside_another(&places, &path).is_none()
            && let Err(error) = tree.provide(&path, PointKind::Directory)
        {
            tracing::debug!(%error, "directory of the image not created");
        }
    }
    Ok(())
}

fn is_directory(mount: &Mount) -> bool {
    matches!(mount, Mount::Dir { .. })
}

fn unusable(path: &Path, reason: &'static str) -> MountPointError {
    MountPointError::Unusable {
        path: path.to_owned(),
        reason,
    }
}

/// Place of a mount point that is, by its name, at or inside of another one.
fn inside_another(places: &[Place], wanted: &Path) -> Option<PathBuf> {
    let around = places.iter().filter_map(|place| {
        let rest = wanted.strip_prefix(&place.wanted).ok()?;
        Some((rest.components().count(), place.found.join(rest)))
    });
    let (_, nearest) = around.min_by_key(|(parts, _)| *parts)?;
    Some(nearest.components().collect())
}

/// Fails if a link leads a mount point into another mount: bubblewrap would follow links there.
fn refuse_detours(places: &[Place]) -> Result<(), MountPointError> {
    for place in places {
        let mut others = places.iter();
        let is_led_into = |other: &Place| {
            place.found.starts_with(&other.found) && !place.wanted.starts_with(&other.wanted)
        };
        if others.any(is_led_into) {
            let reason = "is led into another mount by a link";
            return Err(unusable(&place.wanted, reason));
        }
    }
    Ok(())
}

fn kind_of(source: &Path) -> Result<PointKind, MountPointError> {
    let found = fs::metadata(source).map_err(|error| MountPointError::Io {
        path: source.to_owned(),
        source: error,
    })?;
    Ok(if found.is_dir() {
        PointKind::Directory
    } else {
        PointKind::File
    })
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Places of mounts in a root with these links, or the error. Each mount is a directory.
    fn placed(links: &[(&str, &str)], wanted: &str) -> String {
        let (tree, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (at, target) in links {
            symlink(target, tree.path().join(at)).unwrap();
        }
        let own = rustix::process::geteuid().as_raw();
        let tree = RootTree::open(tree.path(), own).unwrap();
        let mount = |to: &str| Mount::Bind {
            from: source.path().to_owned(),
            to: to.into(),
            writable: true,
        };
        let mut volumes: Vec<Mount> = wanted.split(' ').map(mount).collect();
        let mut root = vec![mount("/"), Mount::Dir { at: "/dir".into() }];
        if let Err(error) = place(&tree, &mut root, &mut volumes) {
            return error.to_string();
        }
        assert_eq!(root, [mount("/")]);
        assert_eq!(
            tree.provide(Path::new("/dir"), PointKind::Directory)
                .unwrap(),
            Path::new("/dir")
        );
        let places = volumes.iter().map(|mount| mount.path().to_str().unwrap());
        places.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn mounts_have_places_without_links() {
        for (links, wanted, expected) in [
            (&[][..], "/opt/bin /work", "/opt/bin /work"),
            (&[("opt", "/srv/../data")], "/opt/bin", "/data/bin"),
            (
                &[("opt", "data")],
                "/opt/bin /opt/bin/x/y",
                "/data/bin /data/bin/x/y",
            ),
            (&[], "/dev/shm /a/../dev/log", "/dev/shm /dev/log"),
            (&[], "/etc/hosts /etc/hosts", "/etc/hosts /etc/hosts"),
        ] {
            assert_eq!(placed(links, wanted), expected);
        }
    }

    #[test]
    fn links_into_other_mounts_are_refused() {
        let detour = "/opt/bin is led into another mount by a link";
        for (links, wanted, expected) in [
            (&[("opt", "/work/sub")][..], "/work /opt/bin", detour),
            (&[("opt", "/work/sub")], "/opt/bin /work", detour),
            (&[("opt", "/proc")], "/opt/bin", detour),
            (
                &[("proc", "/x")],
                "/work",
                "/proc is a link, where this node mounts",
            ),
        ] {
            assert_eq!(placed(links, wanted), expected);
        }
    }
}
