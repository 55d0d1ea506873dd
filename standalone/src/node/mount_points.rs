//! Mount points in a kept root. Its workload may have left links, pipes or other files at any of
//! them, and bubblewrap follows links. So the node resolves each mount point inside the root,
//! creates what is missing, and passes bubblewrap a path without links.
//!
//! No program of the sandbox runs meanwhile. A path is walked by descriptors that follow no link,
//! so that nothing outside of the root is reached even if one did.

mod place;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, mkdirat, open, openat,
    readlinkat, unlinkat,
};
use rustix::io::Errno;

pub(crate) use self::place::place;

/// Symbolic links followed in one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Parts of a path, those of its links included.
const MAX_PARTS: usize = 1000;

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointKind {
    Directory,
    File,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountPointError {
    /// The root cannot be used with these mounts.
    #[error("{} {reason}", path.display())]
    Unusable { path: PathBuf, reason: &'static str },
    #[error("mount point {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Directory that is a root, with the owner that new directories and files get.
#[derive(Debug)]
pub(crate) struct RootTree {
    directory: OwnedFd,
    owner: u32,
}

impl RootTree {
    pub(crate) fn open(path: &Path, owner: u32) -> io::Result<Self> {
        let directory = open(path, PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self { directory, owner })
    }

    /// Resolves a path inside the root and creates what is missing. Returns the absolute path
    /// without links.
    pub(crate) fn provide(&self, path: &Path, kind: PointKind) -> Result<PathBuf, MountPointError> {
        let unusable = |reason| MountPointError::Unusable {
            path: path.to_owned(),
            reason,
        };
        let mut walk = Walk::new(self, path);
        walk.run(kind).map_err(|stop| match stop {
            Stop::Unusable(reason) => unusable(reason),
            Stop::Io(Errno::NAMETOOLONG | Errno::MLINK | Errno::LOOP | Errno::NOTDIR) => {
                unusable("cannot be reached")
            }
            Stop::Io(error) => MountPointError::Io {
                path: path.to_owned(),
                source: error.into(),
            },
        })
    }
}

enum Stop {
    Unusable(&'static str),
    Io(Errno),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Io(error)
    }
}

/// Walk along one path.
struct Walk<'a> {
    root: &'a RootTree,
    /// Directories from the root to here.
    entered: Vec<(OsString, OwnedFd)>,
    left: VecDeque<OsString>,
    links: usize,
    parts: usize,
}

impl<'a> Walk<'a> {
    fn new(root: &'a RootTree, path: &Path) -> Self {
        let mut walk = Self {
            root,
            entered: Vec::new(),
            left: VecDeque::new(),
            links: 0,
            parts: 0,
        };
        walk.prepend(path);
        walk
    }

    fn run(&mut self, kind: PointKind) -> Result<PathBuf, Stop> {
        while let Some(part) = self.left.pop_front() {
            self.parts += 1;
            if self.parts > MAX_PARTS {
                return Err(Stop::Unusable("has too many parts"));
            }
            if part == ".." {
                self.entered.pop();
                continue;
            }
            let is_file = kind == PointKind::File && self.left.is_empty();
            if self.step(&part, is_file)? {
                return Ok(self.path().join(part));
            }
        }
        match kind {
            PointKind::Directory => Ok(self.path()),
            PointKind::File => Err(Stop::Unusable("is a directory")),
        }
    }

    /// Goes into a directory or a link. True if `part` is the file that is looked for.
    fn step(&mut self, part: &OsStr, is_file: bool) -> Result<bool, Stop> {
        let opened = match openat(self.here(), part, PATH, Mode::empty()) {
            Err(Errno::NOENT) if is_file => {
                self.create_file(part)?;
                return Ok(true);
            }
            Err(Errno::NOENT) => self.create_directory(part)?,
            opened => opened?,
        };
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::Directory => self.entered.push((part.to_owned(), opened)),
            FileType::Symlink => self.follow(&opened)?,
            FileType::RegularFile if is_file => return Ok(true),
            // A pipe, socket or device would be mounted over as well, but programs open it first.
            _ if is_file => {
                unlinkat(self.here(), part, AtFlags::empty())?;
                self.create_file(part)?;
                return Ok(true);
            }
            _ => return Err(Stop::Unusable("has a file in its way")),
        }
        Ok(false)
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), Stop> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Stop::Unusable("has too many links"));
        }
        let target = readlinkat(link, c"", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            self.entered.clear();
        }
        self.prepend(&target);
        Ok(())
    }

    fn prepend(&mut self, path: &Path) {
        for part in path.components().rev() {
            if matches!(part, Component::Normal(_) | Component::ParentDir) {
                self.left.push_front(part.as_os_str().to_owned());
            }
        }
    }

    fn here(&self) -> &OwnedFd {
        self.entered
            .last()
            .map_or(&self.root.directory, |(_, directory)| directory)
    }

    fn path(&self) -> PathBuf {
        let names = self.entered.iter().map(|(name, _)| name);
        Path::new("/").join(names.collect::<PathBuf>())
    }

    fn create_directory(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        mkdirat(self.here(), name, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(self.here(), name, flags, Mode::empty())?;
        self.own(&made, 0o755)?;
        Ok(made)
    }

    fn create_file(&self, name: &OsStr) -> Result<(), Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = openat(self.here(), name, flags | OFlags::NOFOLLOW, Mode::RUSR)?;
        self.own(&made, 0o644)
    }

    fn own(&self, created: impl AsFd, mode: u32) -> Result<(), Errno> {
        let (uid, gid) = (self.root.owner, self.root.owner);
        fchown(&created, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        fchmod(&created, Mode::from_raw_mode(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    struct Fixture {
        directory: tempfile::TempDir,
        tree: RootTree,
    }

    fn fixture() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let tree = RootTree::open(directory.path(), own).unwrap();
        Fixture { directory, tree }
    }

    impl Fixture {
        fn at(&self, path: &str) -> PathBuf {
            self.directory.path().join(path)
        }

        fn link(&self, target: &str, at: &str) {
            symlink(target, self.at(at)).unwrap();
        }

        fn provide(&self, path: &str, kind: PointKind) -> String {
            match self.tree.provide(Path::new(path), kind) {
                Ok(found) => found.to_str().unwrap().to_owned(),
                Err(error) => error.to_string(),
            }
        }
    }

    #[test]
    fn missing_parts_are_created_for_all_users() {
        let root = fixture();
        let made = root.provide("/opt/sandbox/bin", PointKind::Directory);
        assert_eq!(made, "/opt/sandbox/bin");
        let created = fs::metadata(root.at("opt/sandbox")).unwrap();
        assert_eq!(created.permissions().mode() & 0o7777, 0o755);
        assert_eq!(root.provide("/etc/hosts", PointKind::File), "/etc/hosts");
        assert!(root.at("etc/hosts").is_file());
        assert_eq!(root.provide("/etc/hosts", PointKind::File), "/etc/hosts");
        assert_eq!(root.provide("/", PointKind::Directory), "/");
    }

    #[test]
    fn links_stay_inside_the_root() {
        let outside = tempfile::tempdir().unwrap();
        let root = fixture();
        root.link(outside.path().to_str().unwrap(), "opt");
        let made = root.provide("/opt/bin", PointKind::Directory);
        assert_eq!(made, format!("{}/bin", outside.path().display()));
        assert!(root.at(&made[1..]).is_dir());
        assert!(!outside.path().join("bin").exists());
        root.link("../../../../x/./y", "up");
        assert_eq!(root.provide("/up/z", PointKind::Directory), "/x/y/z");
        root.link("/gone/file", "dangling");
        assert_eq!(root.provide("/dangling", PointKind::File), "/gone/file");
        assert!(root.at("gone/file").is_file());
    }

    #[test]
    fn obstacles_are_named_and_special_files_replaced() {
        let root = fixture();
        fs::write(root.at("file"), "").unwrap();
        fs::create_dir(root.at("directory")).unwrap();
        root.link("loop", "loop");
        root.link(&format!("/{}", "x".repeat(300)), "long");
        let _socket = UnixListener::bind(root.at("socket")).unwrap();
        for (path, kind, expected) in [
            ("/file", PointKind::Directory, "/file has a file in its way"),
            ("/file/x", PointKind::File, "/file/x has a file in its way"),
            ("/directory", PointKind::File, "/directory is a directory"),
            ("/loop", PointKind::File, "/loop has too many links"),
            ("/long", PointKind::Directory, "/long cannot be reached"),
            ("/socket", PointKind::File, "/socket"),
        ] {
            assert_eq!(root.provide(path, kind), expected);
        }
        assert!(root.at("socket").is_file());
    }
}
