//! Host root: the host's programs, read-only. `/etc` is generated; homes, `/tmp`, `/var`, `/run`
//! and `/opt` are private. A kept root has them, and links to programs, in one directory.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use super::super::mount::Mount;
use super::{OPENHANDS, PodIdentity, etc_files};

/// Program directories. Links stay links, as on merged-usr systems.
const PROGRAMS: [&str; 7] = [
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec",
];

/// Parts of `/etc` that programs need and that reveal nothing about the host, separated by spaces.
const SHARED: &str = "\
    alternatives bash.bashrc bash_completion.d ca-certificates ca-certificates.conf \
    debian_version fonts gai.conf inputrc java-11-openjdk java-17-openjdk java-21-openjdk \
    ld.so.cache ld.so.conf ld.so.conf.d locale.alias localtime login.defs magic mailcap \
    mime.types nanorc os-release pam.d perl profile profile.d protocols python3 services \
    ssl/certs ssl/openssl.cnf terminfo vim";

/// Private directories and their modes. Each top-level one is a separate mount.
const OWN: [(&str, u32); 14] = [
    ("home", 0o755),
    ("home/openhands", 0o755),
    ("home/sandbox", 0o755),
    ("root", 0o700),
    ("tmp", 0o1777),
    ("opt", 0o755),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
    ("etc", 0o755),
];

/// Builds the private part below `scratch` and returns the mounts.
pub(super) fn root(scratch: &Path, pod_identity: &PodIdentity) -> io::Result<Vec<Mount>> {
    own_directories(scratch, pod_identity)?;
    let mut mounts = vec![read_only("/usr")];
    mounts.extend(PROGRAMS.iter().filter_map(|path| program(path)));
    let top = OWN.iter().filter(|(name, _)| !name.contains('/'));
    mounts.extend(top.map(|(name, _)| Mount::Bind {
        from: scratch.join(name),
        to: Path::new("/").join(name),
        writable: true,
    }));
    mounts.extend(shared(scratch)?);
    mounts.push(Mount::Dir {
        at: "/workspace".into(),
    });
    Ok(mounts)
}

/// Begins a root that is kept, in the empty directory `root`.
pub(super) fn begin_kept(root: &Path, pod_identity: &PodIdentity) -> io::Result<()> {
    own_directories(root, pod_identity)?;
    for mount in PROGRAMS.iter().filter_map(|path| program(path)) {
        if let Mount::Symlink { target, at } = mount {
            let at = at.strip_prefix("/").map_err(io::Error::other)?;
            std::os::unix::fs::symlink(target, root.join(at))?;
        }
    }
    shared(root).map(drop)
}

/// Mounts of the host's files in a kept root.
pub(super) fn kept_mounts() -> Vec<Mount> {
    let programs = PROGRAMS.iter().filter_map(|path| program(path));
    let programs = programs.filter(|mount| matches!(mount, Mount::Bind { .. }));
    let shared = shared_parts().filter(|(_, metadata)| !is_copied(metadata));
    let shared = shared.map(|(path, _)| read_only(path));
    let workspace = Mount::Dir {
        at: "/workspace".into(),
    };
    let mounts = [read_only("/usr")].into_iter().chain(programs);
    mounts.chain(shared).chain([workspace]).collect()
}

fn read_only(path: impl AsRef<Path>) -> Mount {
    let path = path.as_ref().to_owned();
    Mount::Bind {
        from: path.clone(),
        to: path,
        writable: false,
    }
}

fn program(path: &str) -> Option<Mount> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if kind.is_symlink() {
        let target = fs::read_link(path).ok()?;
        return Some(Mount::Symlink {
            target,
            at: path.into(),
        });
    }
    kind.is_dir().then(|| read_only(path))
}

fn own_directories(scratch: &Path, pod_identity: &PodIdentity) -> io::Result<()> {
    for (name, mode) in OWN {
        let path = scratch.join(name);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    std::os::unix::fs::symlink("/run", scratch.join("var/run"))?;
    std::os::unix::fs::symlink("/run/lock", scratch.join("var/lock"))?;
    etc_files::users(&scratch.join("etc"), pod_identity)?;
    etc_files::pod(&scratch.join("etc"), pod_identity)?;
    let owner = |uid: u32| pod_identity.node.is_root().then_some(uid);
    home(&scratch.join("root"), None)?;
    home(&scratch.join("home/sandbox"), owner(65532))?;
    home(&scratch.join("home/openhands"), owner(OPENHANDS))
}

/// Fills a home directory from the host's skeleton and sets its owner.
fn home(home: &Path, owner: Option<u32>) -> io::Result<()> {
    for name in [".bashrc", ".profile"] {
        let Ok(text) = fs::read(Path::new("/etc/skel").join(name)) else {
            continue;
        };
        fs::write(home.join(name), text)?;
        chown(home.join(name), owner, owner)?;
    }
    chown(home, owner, owner)
}

/// Copies small shared files and links, which the container may change; mounts the rest.
fn shared(scratch: &Path) -> io::Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for (from, metadata) in shared_parts() {
        let to = from.strip_prefix("/").map_err(io::Error::other)?;
        let to = scratch.join(to);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        if !is_copied(&metadata) {
            mounts.push(read_only(&from));
        } else if metadata.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else {
            fs::write(&to, fs::read(&from)?)?;
        }
    }
    Ok(mounts)
}

/// Shared parts of `/etc` that this machine has.
fn shared_parts() -> impl Iterator<Item = (PathBuf, fs::Metadata)> {
    let paths = SHARED.split_whitespace();
    let paths = paths.map(|name| Path::new("/etc").join(name));
    paths.filter_map(|path| {
        let metadata = fs::symlink_metadata(&path).ok()?;
        Some((path, metadata))
    })
}

fn is_copied(metadata: &fs::Metadata) -> bool {
    metadata.is_symlink() || (metadata.is_file() && metadata.len() <= 4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::node_user::NodeUser;

    #[test]
    fn host_root_excludes_host_files() {
        let scratch = tempfile::tempdir().unwrap();
        let pod_identity = PodIdentity {
            hostname: "pod".into(),
            address: "10.0.0.1".into(),
            resolv_conf: String::new(),
            node: NodeUser::current(),
        };
        let mounts = root(scratch.path(), &pod_identity).unwrap();
        for mount in &mounts {
            let Mount::Bind { from, to, writable } = mount else {
                continue;
            };
            assert_eq!(*writable, from.starts_with(scratch.path()), "{mount:?}");
            for hidden in "/etc /etc/shadow /etc/ssl /etc/ssl/private /root /home".split(' ') {
                assert_ne!(from, Path::new(hidden), "{to:?}");
            }
        }
        assert!(scratch.path().join("etc/passwd").is_file());
        assert!(!scratch.path().join("etc/shadow").exists());
    }
}
