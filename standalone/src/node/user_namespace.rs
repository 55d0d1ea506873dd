//! User namespace of the containers of a root node: root inside is an unprivileged user of the
//! host. Files keep their owners on disk, because their mounts are mapped into the namespace.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree, unmount,
};

/// Ids of the namespace, from 0.
const IDS: u32 = 65_536;
/// Ranges of ids, of which a node takes one.
const RANGES: u32 = 0x0fff;

/// Range of ids on the host; all are higher than those of users and of systemd's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdRange {
    Sandboxes,
    ImageBuilds,
}

impl IdRange {
    const fn first(self) -> u32 {
        match self {
            Self::Sandboxes => 0x7000_0000,
            Self::ImageBuilds => 0x6000_0000,
        }
    }

    /// End of the name of the directory for mounts.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sandboxes => "",
            Self::ImageBuilds => "-builds",
        }
    }
}

/// Namespaces of a node. Image builds have all capabilities of theirs, and share it with no sandbox.
#[derive(Debug)]
pub(crate) struct UserNamespaces {
    sandboxes: Arc<UserNamespace>,
    image_builds: Option<Arc<UserNamespace>>,
}

impl UserNamespaces {
    pub(crate) fn new(
        sandboxes: Arc<UserNamespace>,
        image_builds: Option<Arc<UserNamespace>>,
    ) -> Self {
        Self {
            sandboxes,
            image_builds,
        }
    }

    pub(crate) fn of(&self, is_image_build: bool) -> Arc<UserNamespace> {
        let builds = self.image_builds.as_ref().filter(|_| is_image_build);
        Arc::clone(builds.unwrap_or(&self.sandboxes))
    }
}

/// Attributes of a mount for a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountAttributes {
    pub writable: bool,
    /// False if the owners on disk are already ids of the namespace.
    pub mapped: bool,
}

impl MountAttributes {
    pub(crate) const READ_ONLY: Self = Self::mapped(false);

    pub(crate) const fn mapped(writable: bool) -> Self {
        Self {
            writable,
            mapped: true,
        }
    }
}

/// The namespace and the directory in which mapped mounts are made.
#[derive(Debug)]
pub(crate) struct UserNamespace {
    descriptor: OwnedFd,
    /// Id of the host that is root inside.
    first: u32,
    directory: PathBuf,
    count: AtomicU64,
}

/// Mapped mounts of one start. Must be dropped on the launcher thread, which made them.
#[derive(Debug, Default)]
pub(crate) struct MappedMounts(Vec<PathBuf>);

impl MappedMounts {
    /// Unmounts and removes `target` with the others.
    pub(crate) fn add(&mut self, target: PathBuf) {
        self.0.push(target);
    }
}

impl UserNamespace {
    /// Creates the namespace and checks that `sources` can be mapped into it.
    pub(crate) fn create(
        range: IdRange,
        number: u32,
        directory: PathBuf,
        sources: &[PathBuf],
    ) -> io::Result<Self> {
        let first = range.first() + (number % RANGES) * IDS;
        let namespace = Self {
            descriptor: create(first)?,
            first,
            directory,
            count: AtomicU64::new(0),
        };
        for source in sources {
            let opened = open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            namespace.copy(opened, MountAttributes::READ_ONLY)?;
        }
        fs::create_dir_all(&namespace.directory)?;
        Ok(namespace)
    }

    /// Prepares the directory in the mount namespace of the launcher thread.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let (flags, options) = (MountFlags::empty(), c"mode=0711");
        Ok(mount("tmpfs", &self.directory, "tmpfs", flags, options)?)
    }

    /// Owner on the host of what `id` owns inside.
    pub(crate) fn outside(&self, id: u32) -> u32 {
        self.first + id.min(IDS - 1)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// An empty directory that is unmounted and removed with `mounts`.
    pub(crate) fn mount_point(&self, mounts: &mut MappedMounts) -> io::Result<PathBuf> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let target = self.directory.join(number.to_string());
        fs::create_dir(&target)?;
        mounts.0.push(target.clone());
        Ok(target)
    }

    /// Replaces `source` by a mount of it. Runs on the launcher thread.
    pub(crate) fn map(
        &self,
        source: &mut PathBuf,
        attributes: MountAttributes,
        mounts: &mut MappedMounts,
    ) -> io::Result<()> {
        let opened = open(&*source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        *source = self.map_file(&opened, attributes, mounts)?;
        Ok(())
    }

    /// Path of a mount of an open file or directory. Runs on the launcher thread, which must have
    /// opened it.
    pub(crate) fn map_file(
        &self,
        opened: &OwnedFd,
        attributes: MountAttributes,
        mounts: &mut MappedMounts,
    ) -> io::Result<PathBuf> {
        let kind = FileType::from_raw_mode(fstat(opened)?.st_mode);
        let target = if kind.is_dir() {
            self.mount_point(mounts)?
        } else {
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            let target = self.directory.join(number.to_string());
            fs::write(&target, "")?;
            mounts.0.push(target.clone());
            target
        };
        let tree = self.copy(opened, attributes)?;
        let from_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, c"", rustix::fs::CWD, &target, from_descriptor)?;
        Ok(target)
    }

    /// A detached copy of the mount of an open file or directory. The kernel locks its attributes
    /// when the container's mount namespace is made, so that no capability inside changes them.
    fn copy(&self, source: impl AsFd, attributes: MountAttributes) -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(source, c"", flags)?;
        if !attributes.writable {
            set_attribute(&tree, libc::AT_RECURSIVE, libc::MOUNT_ATTR_RDONLY, None)?;
        }
        if attributes.mapped {
            let users = Some(self.descriptor());
            set_attribute(&tree, 0, libc::MOUNT_ATTR_IDMAP, users)?;
        }
        Ok(tree)
    }
}

#[expect(unsafe_code, reason = "no library has the system call")]
fn set_attribute(
    tree: &OwnedFd,
    flags: libc::c_int,
    attribute: u64,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let users = users.map_or(0, |users| users.as_raw_fd());
    let attributes = libc::mount_attr {
        attr_set: attribute,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(users).unwrap_or_default(),
    };
    // SAFETY: the descriptors are open, the path is a string and the size is that of the struct.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Drop for UserNamespace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

impl Drop for MappedMounts {
    fn drop(&mut self) {
        for target in self.0.iter().rev() {
            let _ = unmount(target, UnmountFlags::DETACH);
            let _ = fs::remove_file(target).or_else(|_| fs::remove_dir(target));
        }
    }
}

/// A namespace with ids from `first`. It lives as long as the descriptor.
fn create(first: u32) -> io::Result<OwnedFd> {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "sh", "-c", "echo && exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let descriptor = map_ids(&mut child, first);
    drop(child.stdin.take());
    child.wait()?;
    descriptor
}

fn map_ids(child: &mut Child, first: u32) -> io::Result<OwnedFd> {
    let output = child.stdout.as_mut();
    let output = output.ok_or(io::ErrorKind::BrokenPipe)?;
    output.read_exact(&mut [0])?;
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    for map in ["uid_map", "gid_map"] {
        fs::write(process.join(map), format!("0 {first} {IDS}"))?;
    }
    Ok(fs::File::open(process.join("ns/user"))?.into())
}
