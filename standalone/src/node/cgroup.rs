//! Limits of memory, processes and CPU by cgroup v1 or v2. A controller that this machine lacks
//! limits nothing, and the log reports it once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Handle;

/// CPU time is granted per period of this many microseconds.
const CPU_PERIOD: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    pub processes: u64,
    /// Thousandths of a CPU.
    pub cpu: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Memory,
    Processes,
    Cpu,
}

const CONTROLLERS: [Controller; 3] = [Controller::Memory, Controller::Processes, Controller::Cpu];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The node's cgroup of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    controller: Controller,
    path: PathBuf,
    version: Version,
}

/// The node's cgroups, parents of the container cgroups.
#[derive(Debug, Default)]
pub(crate) struct NodeCgroups(Vec<Hierarchy>);

/// Cgroups of one container run; removed when dropped.
#[derive(Debug)]
pub(crate) struct ContainerCgroup(Vec<Hierarchy>);

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
        }
    }
}

impl NodeCgroups {
    /// Creates the node's cgroups and records their paths.
    pub(crate) fn create(tag: &str, record: &Path) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut cgroups = Self::default();
        for controller in CONTROLLERS {
            let created = hierarchy(&mounts, &own, controller)
                .ok_or_else(|| io::Error::other("not mounted"))
                .and_then(|parent| cgroups.add(parent, tag, record));
            if let Err(error) = created {
                let controller = controller.name();
                tracing::info!(controller, %error, "cgroup limits are not enforced");
            }
        }
        cgroups
    }

    fn add(&mut self, mut node: Hierarchy, tag: &str, record: &Path) -> io::Result<()> {
        node.path.push(format!("sandbox-standalone-{tag}"));
        fs::create_dir_all(&node.path)?;
        let nodes = self.0.iter().chain([&node]);
        let mut lines: Vec<_> = nodes.map(|node| node.path.to_string_lossy()).collect();
        lines.dedup();
        fs::write(record, lines.join("\n"))?;
        if node.version == Version::Two {
            let enable = format!("+{}", node.controller.name());
            fs::write(node.path.join("cgroup.subtree_control"), enable)?;
        }
        // Proves that limits work here.
        let probe = Limits {
            memory: Some(64 << 20),
            processes: 1024,
            cpu: Some(1000),
        };
        drop(Self(vec![node.clone()]).container("probe", probe)?);
        self.0.push(node);
        Ok(())
    }

    pub(crate) fn container(&self, name: &str, limits: Limits) -> io::Result<ContainerCgroup> {
        let mut container = ContainerCgroup(Vec::new());
        for node in &self.0 {
            let own = Hierarchy {
                path: node.path.join(name),
                ..node.clone()
            };
            fs::create_dir_all(&own.path)?;
            container.0.push(own.clone());
            own.limit(limits)?;
        }
        Ok(container)
    }
}

impl NodeCgroups {
    /// Changes the limits of a container that runs.
    pub(crate) fn resize(&self, name: &str, limits: Limits) -> io::Result<()> {
        let own = self.0.iter().map(|node| Hierarchy {
            path: node.path.join(name),
            ..node.clone()
        });
        own.filter(|own| own.path.is_dir())
            .try_for_each(|own| own.limit(limits))
    }
}

impl Hierarchy {
    fn limit(&self, limits: Limits) -> io::Result<()> {
        let memory = limits.memory.map(|bytes| bytes.to_string());
        let quota = limits.cpu.map(|cpu| (cpu * CPU_PERIOD / 1000).max(1000));
        let (file, value) = match (self.controller, self.version) {
            (Controller::Processes, _) => ("pids.max", Some(limits.processes.to_string())),
            (Controller::Memory, Version::One) => ("memory.limit_in_bytes", memory),
            (Controller::Memory, Version::Two) => ("memory.max", memory),
            (Controller::Cpu, Version::One) => {
                ("cpu.cfs_quota_us", quota.map(|quota| quota.to_string()))
            }
            (Controller::Cpu, Version::Two) => (
                "cpu.max",
                quota.map(|quota| format!("{quota} {CPU_PERIOD}")),
            ),
        };
        let Some(value) = value else { return Ok(()) };
        fs::write(self.path.join(file), value)?;
        if file == "memory.max" {
            let _ = fs::write(self.path.join("memory.swap.max"), "0");
            // Kills the whole container on OOM, as the kubelet does.
            let _ = fs::write(self.path.join("memory.oom.group"), "1");
        }
        Ok(())
    }
}

impl ContainerCgroup {
    pub(crate) fn add(&self, pid: i32) -> io::Result<()> {
        let mut groups = self.0.iter();
        groups.try_for_each(|own| fs::write(own.path.join("cgroup.procs"), pid.to_string()))
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|own| own.path.as_path())
    }

    /// True if the kernel killed a process of the cgroup for lack of memory.
    pub(crate) fn had_oom_kill(&self) -> bool {
        let is_memory = |own: &&Hierarchy| own.controller == Controller::Memory;
        self.0.iter().filter(is_memory).any(|own| {
            let file = match own.version {
                Version::One => "memory.oom_control",
                Version::Two => "memory.events",
            };
            let text = fs::read_to_string(own.path.join(file)).unwrap_or_default();
            let is_kill = |line: &str| line.starts_with("oom_kill ") && line.trim() != "oom_kill 0";
            text.lines().any(is_kill)
        })
    }
}

impl Drop for ContainerCgroup {
    fn drop(&mut self) {
        for own in &self.0 {
            match fs::remove_dir(&own.path) {
                // With version 2 the controllers share it. Processes that joined the container may
                // be a moment behind it; the end of the node removes what is left then.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let path = own.path.clone();
                    if let Ok(runtime) = Handle::try_current() {
                        runtime.spawn(async move { remove(&path).await });
                    }
                }
                _ => {}
            }
        }
    }
}

/// Finds the parent cgroup: with version 1 below the process's own cgroup, with version 2 at the
/// root, because a v2 cgroup with processes cannot have children.
fn hierarchy(mounts: &str, own: &str, controller: Controller) -> Option<Hierarchy> {
    let fields = |line: &str| -> Option<(PathBuf, PathBuf, String, String)> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?.into(), left.next()?.into());
        let mut right = right.split(' ');
        let kind = right.next()?.to_owned();
        Some((root, point, kind, right.nth(1)?.to_owned()))
    };
    let mounts: Vec<_> = mounts.lines().filter_map(fields).collect();
    let is_listed = |list: &str| list.split(',').any(|name| name == controller.name());
    let mut ones = mounts.iter().filter(|mount| mount.2 == "cgroup");
    let one = ones.find(|(.., options)| is_listed(options));
    let (path, version) = if let Some((root, point, ..)) = one {
        let path = own.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            is_listed(names).then_some(path)
        })?;
        let path = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let nested = Some(point.join(path)).filter(|nested| nested.is_dir());
        (nested.unwrap_or_else(|| point.clone()), Version::One)
    } else {
        let two = mounts.iter().find(|(_, _, kind, _)| kind == "cgroup2")?;
        (two.1.clone(), Version::Two)
    };
    Some(Hierarchy {
        controller,
        path,
        version,
    })
}

/// Kills the processes in the recorded cgroups and removes them.
pub(crate) async fn remove_recorded(record: &Path) {
    let Ok(paths) = fs::read_to_string(record) else {
        return;
    };
    for base in paths.lines().map(Path::new) {
        remove(base).await;
    }
    let _ = fs::remove_file(record);
}

async fn remove(base: &Path) {
    for _ in 0..100 {
        if !base.exists() || remove_tree(base) {
            return;
        }
        // A killed process leaves its cgroup asynchronously.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tracing::warn!(path = %base.display(), "cannot remove cgroup");
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
    let pid = |line: &str| Pid::from_raw(line.parse().ok()?);
    for pid in processes.lines().filter_map(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchy_finds_both_cgroup_versions() {
        let one = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                   32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                   31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/nonexistent\n2:cpu,cpuacct:/\n0::/\n";
        let two = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let (memory, cpu, processes) = (Controller::Memory, Controller::Cpu, Controller::Processes);
        let (first, second) = (Version::One, Version::Two);
        let in_slice = "0::/user.slice\n";
        for (mounts, own, controller, expected) in [
            (one, own, memory, Some(("/sys/fs/cgroup/memory", first))),
            (one, own, cpu, Some(("/sys/fs/cgroup/cpu/", first))),
            (
                one,
                own,
                processes,
                Some(("/sys/fs/cgroup/unified", second)),
            ),
            (two, in_slice, processes, Some(("/sys/fs/cgroup", second))),
            ("", "", memory, None),
        ] {
            let found = hierarchy(mounts, own, controller);
            let found = found.as_ref();
            let found = found.map(|found| (found.path.to_str().unwrap(), found.version));
            assert_eq!(found, expected, "{controller:?}");
        }
    }
}
