//! Memory limits by cgroup, version 1 or 2, where the node may make groups. Where it may not,
//! containers run without a limit, and the log says so once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The node's own group, parent of those of the containers.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    base: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The group of one start of one container; removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    version: Version,
}

impl Groups {
    /// Makes the node's group, and records where.
    pub(crate) fn make(tag: &str, record: &Path) -> io::Result<Self> {
        let name = format!("sandbox-standalone-{tag}");
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let (parent, version) = hierarchy(&mounts, &own)
            .ok_or_else(|| io::Error::other("no memory controller is mounted"))?;
        let base = parent.join(name);
        fs::create_dir_all(&base)?;
        fs::write(record, base.as_os_str().as_encoded_bytes())?;
        if version == Version::Two {
            fs::write(base.join("cgroup.subtree_control"), "+memory")?;
        }
        let groups = Self { base, version };
        // The proof that limits work here.
        drop(groups.group("probe", 64 << 20)?);
        Ok(groups)
    }

    /// A group with a limit in bytes.
    pub(crate) fn group(&self, name: &str, limit: u64) -> io::Result<Group> {
        let group = Group {
            path: self.base.join(name),
            version: self.version,
        };
        fs::create_dir_all(&group.path)?;
        match self.version {
            Version::One => fs::write(group.path.join("memory.limit_in_bytes"), limit.to_string())?,
            Version::Two => {
                fs::write(group.path.join("memory.max"), limit.to_string())?;
                let _ = fs::write(group.path.join("memory.swap.max"), "0");
                // One victim is all victims, as the kubelet has it.
                let _ = fs::write(group.path.join("memory.oom.group"), "1");
            }
        }
        Ok(group)
    }
}

impl Group {
    pub(crate) fn add(&self, pid: i32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    /// Whether the kernel killed a process of the group for want of memory.
    pub(crate) fn had_oom_kill(&self) -> bool {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.is_some_and(|count| count.trim() != "0")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "memory group stays for now");
        }
    }
}

/// Where the node's group goes: version 1 below the node's own group, version 2 at the top, as
/// its groups may not hold processes and have children at once.
fn hierarchy(mounts: &str, own: &str) -> Option<(PathBuf, Version)> {
    let fields = |line: &str| -> Option<(PathBuf, PathBuf, String, String)> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?.into(), left.next()?.into());
        let mut right = right.split(' ');
        Some((
            root,
            point,
            right.next()?.to_owned(),
            right.nth(1)?.to_owned(),
        ))
    };
    let mounts: Vec<_> = mounts.lines().filter_map(fields).collect();
    let one = mounts
        .iter()
        .find(|mount| mount.2 == "cgroup" && mount.3.split(',').any(|option| option == "memory"));
    if let Some((root, point, ..)) = one {
        let path = own.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let path = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let nested = point.join(path);
        let parent = if nested.is_dir() {
            nested
        } else {
            point.clone()
        };
        return Some((parent, Version::One));
    }
    let two = mounts.iter().find(|mount| mount.2 == "cgroup2")?;
    Some((two.1.clone(), Version::Two))
}

/// Kills what is left in the groups that the record names, and removes them.
pub(crate) async fn remove_recorded(record: &Path) {
    let Ok(base) = fs::read_to_string(record) else {
        return;
    };
    let base = PathBuf::from(base);
    for _ in 0..100 {
        if !base.exists() || remove_tree(&base) {
            let _ = fs::remove_file(record);
            return;
        }
        // Killed processes leave their group when the kernel gets to it.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tracing::warn!(path = %base.display(), "memory group cannot be removed");
}

fn remove_tree(base: &Path) -> bool {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            kill_all(&entry.path());
            let _ = fs::remove_dir(entry.path());
        }
    }
    fs::remove_dir(base).is_ok()
}

fn kill_all(group: &Path) {
    use rustix::process::{Pid, Signal, kill_process};
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in processes
        .lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
    {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let one = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                   31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = hierarchy(one, "4:memory:/nonexistent\n0::/\n").unwrap();
        assert_eq!(found, ("/sys/fs/cgroup/memory".into(), Version::One));
        let two = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = hierarchy(two, "0::/user.slice\n").unwrap();
        assert_eq!(found, ("/sys/fs/cgroup".into(), Version::Two));
        assert_eq!(hierarchy("", ""), None);
    }
}
