//! Mounts that the node makes for a container before bubblewrap starts: the root of a pulled image,
//! and copies of others with mapped ids. Runs on the launcher thread.

use std::fs;
use std::io;
use std::path::Path;

use super::bwrap::BwrapSpec;
use super::mount::Mount;
use super::mount_points::{RootTree, place};
use super::overlay::mount_overlay;
use super::user_namespace::{MappedMounts, MountAttributes, UserNamespace};
use super::volumes::open_inside;

/// Replaces the mounts of a container by what bubblewrap binds. With `keeps_root`, mount points get
/// a place without links in the root.
pub(crate) fn make(
    sandbox: &mut BwrapSpec,
    users: Option<&UserNamespace>,
    keeps_root: bool,
    mounts: &mut MappedMounts,
) -> io::Result<()> {
    mount_root(sandbox, users, mounts)?;
    let tree = keeps_root.then(|| root_tree(sandbox, users)).transpose()?;
    let (root, volumes) = (&mut sandbox.root, &mut sandbox.volumes);
    for mount in root.iter_mut().chain(&mut *volumes) {
        bind(mount, users, mounts)?;
    }
    if let Some(tree) = tree.flatten() {
        place(&tree, root, volumes).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Mounts the root of a pulled image, of which bubblewrap makes the root of the container.
fn mount_root(
    sandbox: &mut BwrapSpec,
    users: Option<&UserNamespace>,
    mounts: &mut MappedMounts,
) -> io::Result<()> {
    for mount in &mut sandbox.root {
        let Mount::Overlay(root) = mount else {
            continue;
        };
        let mut layers = root.store.clone();
        let target = if let Some(users) = users {
            users.map(&mut layers, MountAttributes::READ_ONLY, mounts)?;
            users.mount_point(mounts)?
        } else {
            let target = root.scratch.join("root");
            fs::create_dir(&target)?;
            mounts.add(target.clone());
            target
        };
        mount_overlay(root, &layers, &target)?;
        *mount = Mount::Mounted(target);
    }
    Ok(())
}

/// The root before its ids are mapped.
fn root_tree(sandbox: &BwrapSpec, users: Option<&UserNamespace>) -> io::Result<Option<RootTree>> {
    let found = sandbox.root.iter().find_map(|mount| match mount {
        // Its changes have ids of the namespace on disk.
        Mount::Mounted(root) => Some((root, users.map_or(0, |users| users.outside(0)))),
        Mount::Bind { from, to, .. } if to == Path::new("/") => Some((from, 0)),
        _ => None,
    });
    found
        .map(|(root, owner)| RootTree::open(root, owner))
        .transpose()
}

/// Finds what is mounted, and maps its ids.
fn bind(
    mount: &mut Mount,
    users: Option<&UserNamespace>,
    mounts: &mut MappedMounts,
) -> io::Result<()> {
    match mount {
        Mount::Bind { from, writable, .. } => {
            if let Some(users) = users {
                users.map(from, MountAttributes::mapped(*writable), mounts)?;
            }
        }
        Mount::Volume {
            directory,
            below,
            to,
            writable,
            mapped,
        } => {
            let attributes = MountAttributes {
                writable: *writable,
                mapped: *mapped,
            };
            let from = match users {
                Some(users) if below.as_os_str().is_empty() => {
                    users.map(directory, attributes, mounts)?;
                    directory.clone()
                }
                Some(users) => {
                    let opened = open_inside(directory, below)?;
                    users.map_file(&opened, attributes, mounts)?
                }
                None => directory.join(below),
            };
            *mount = Mount::Bind {
                from,
                to: to.clone(),
                writable: *writable,
            };
        }
        Mount::Host { .. }
        | Mount::Symlink { .. }
        | Mount::Dir { .. }
        | Mount::Overlay(_)
        | Mount::Mounted(_) => {}
    }
    Ok(())
}
