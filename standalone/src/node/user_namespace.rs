//! User namespace of the containers of a root node: root inside is an unprivileged user of the
//! host. Files keep their owners on disk, because their mounts are mapped into the namespace.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree, unmount,
};

/// Ids of the namespace, from 0.
const IDS: u32 = 65_536;
/// First id outside; higher than those of users and of systemd's containers.
const FIRST: u32 = 0x7000_0000;
/// Ranges of ids, of which a node takes one.
const RANGES: u32 = 0x0fff;

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
    pub(crate) fn create(range: u32, directory: PathBuf, sources: &[PathBuf]) -> io::Result<Self> {
        let first = FIRST + (range % RANGES) * IDS;
        let namespace = Self {
            descriptor: create(first)?,
            first,
            directory,
            count: AtomicU64::new(0),
        };
        for source in sources {
            let opened = open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            namespace.mapped(opened)?;
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

    /// Replaces `source` by a mapped mount of it. Runs on the launcher thread.
    pub(crate) fn map(&self, source: &mut PathBuf, mounts: &mut MappedMounts) -> io::Result<()> {
        let opened = open(&*source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        *source = self.map_file(&opened, mounts)?;
        Ok(())
    }

    /// Path of a mapped mount of an open file or directory. Runs on the launcher thread, which must
    /// have opened it.
    pub(crate) fn map_file(
        &self,
        opened: &OwnedFd,
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
        let tree = self.mapped(opened)?;
        let from_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, c"", rustix::fs::CWD, &target, from_descriptor)?;
        Ok(target)
    }

    /// A detached copy of the mount of an open file or directory, with its ids mapped.
    #[expect(unsafe_code, reason = "no library has the system call")]
    fn mapped(&self, source: impl AsFd) -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(source, c"", flags)?;
        let descriptor = u64::try_from(self.descriptor.as_raw_fd()).unwrap_or_default();
        let attributes = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: descriptor,
        };
        // SAFETY: the descriptor is open, the path is a string and the size is that of the struct.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        };
        if result == 0 {
            Ok(tree)
        } else {
            Err(io::Error::last_os_error())
        }
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
