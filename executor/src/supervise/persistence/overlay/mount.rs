//! Mount of the overlay as the root of the container. The new root gets all mounts of the old one
//! but the store; until it is complete, the old root is untouched.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, chroot, fchdir, pivot_root};

use super::target;
use crate::supervise::persistence::mounts::{self, Mount, is_at_or_below, relative};

#[derive(Debug, thiserror::Error)]
pub(super) enum MountError {
    #[error("cannot {0}: {1}")]
    Step(&'static str, io::Error),
    #[error("cannot attach {0}: {1}")]
    Attach(String, io::Error),
}

fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> MountError {
    move |error| MountError::Step(step, error.into())
}

/// Directories of an overlay.
pub(super) struct OverlayDirectories {
    pub(super) upper: OwnedFd,
    pub(super) work: OwnedFd,
    /// Place in the old root where the overlay is mounted first.
    pub(super) mount: OwnedFd,
}

/// Makes an overlay over `/` the root of the container. `store` is not visible in it.
pub(super) fn enter(directories: &OverlayDirectories, store: &Path) -> Result<(), MountError> {
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change(c"/", private).map_err(step("change the propagation of mounts"))?;
    let mounts = mounts::read().map_err(step("read the mounts"))?;
    let root = create(directories)?;
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    let attached = move_mount(&root, c"", &directories.mount, c"", empty);
    attached.map_err(step("attach the overlay"))?;
    let entered = fill(root.as_fd(), &mounts, store.as_os_str().as_encoded_bytes())
        .and_then(|()| pivot(&root));
    if entered.is_err() {
        let _ = detach(&root);
    }
    entered
}

/// Creates the overlay, not attached to any place.
fn create(directories: &OverlayDirectories) -> Result<OwnedFd, MountError> {
    let failed = step::<Errno>;
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC);
    let context = context.map_err(failed("create an overlay"))?;
    let (upper, work) = (path(&directories.upper), path(&directories.work));
    for (key, value) in [
        (c"source", "sandbox-root"),
        (c"lowerdir", "/"),
        (c"upperdir", &upper),
        (c"workdir", &work),
    ] {
        let set = fsconfig_set_string(context.as_fd(), key, value);
        set.map_err(failed("set up the overlay"))?;
    }
    let flag = fsconfig_set_flag(context.as_fd(), c"userxattr");
    flag.map_err(failed("set up the overlay"))?;
    fsconfig_create(context.as_fd()).map_err(failed("create the overlay"))?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(context.as_fd(), flags, MountAttrFlags::empty());
    mount.map_err(failed("mount the overlay"))
}

/// Attaches copies of the mounts of the old root.
fn fill(root: BorrowedFd<'_>, mounts: &[Mount], store: &[u8]) -> Result<(), MountError> {
    let kept = |mount: &&Mount| !is_at_or_below(&mount.point, store);
    for mount in mounts::topmost(mounts).filter(kept) {
        let attached = attach(root, &mount.point);
        attached.map_err(|error| {
            let point = String::from_utf8_lossy(&mount.point).into_owned();
            MountError::Attach(point, error)
        })?;
        if is_at_or_below(store, &mount.point) {
            hide(root, store).map_err(step("hide the store"))?;
        }
    }
    Ok(())
}

fn attach(root: BorrowedFd<'_>, point: &[u8]) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(rustix::fs::CWD, point, flags)?;
    let is_directory = FileType::from_raw_mode(fstat(&tree)?.st_mode).is_dir();
    let place = target::open(root, relative(point), is_directory)?;
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&tree, c"", &place, c"", empty)?)
}

/// Removes the store from a copy of the mount that it is below.
fn hide(root: BorrowedFd<'_>, store: &[u8]) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let copy = openat2(root, relative(store), flags, Mode::empty(), resolve)?;
    detach(&copy)
}

fn detach(mount: &OwnedFd) -> io::Result<()> {
    Ok(unmount(path(mount), UnmountFlags::DETACH)?)
}

/// Makes the mount the root.
fn pivot(root: &OwnedFd) -> Result<(), MountError> {
    let failed = step::<Errno>;
    fchdir(root).map_err(failed("enter the new root"))?;
    let entered = match pivot_root(c".", c".") {
        // The old one is over the new one now.
        Ok(()) => unmount(c".", UnmountFlags::DETACH),
        // Default seccomp filters of container runtimes refuse it.
        Err(Errno::PERM) => cover(root),
        Err(error) => Err(error),
    };
    if let Err(error) = entered {
        let _ = chdir(c"/");
        return Err(failed("enter the new root")(error));
    }
    chdir(c"/").map_err(failed("enter the new root"))
}

/// Puts the mount over the old root and enters it. A process that joins the mount namespace gets
/// the topmost root, and `..` leads back to it.
fn cover(root: &OwnedFd) -> Result<(), Errno> {
    move_mount(
        root,
        c"",
        rustix::fs::CWD,
        c"/",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    chroot(c".")
}

/// Path of an open file for calls that take no descriptor.
fn path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
