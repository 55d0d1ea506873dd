//! Limits of memory, processes, CPU and disk by cgroup v1 or v2. A controller that this machine
//! lacks limits nothing, and the log reports it once; only the limit of the disk, which a flag asks
//! for, is required then.

mod disk;
mod hierarchy;
mod removal;

use std::fs;
use std::io;
use std::path::Path;

use tokio::runtime::Handle;

pub(crate) use self::disk::{Device, DiskRate};
pub(crate) use self::removal::remove_recorded;

use self::hierarchy::{Controller, Hierarchy, Version, hierarchy};
use self::removal::remove;

const CONTROLLERS: [Controller; 3] = [Controller::Memory, Controller::Processes, Controller::Cpu];

/// Part of the machine's memory that containers leave to the rest of it, and its lower bound.
const RESERVED_PART: u64 = 20;
const MIN_RESERVED: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    pub processes: u64,
    /// Thousandths of a CPU.
    pub cpu: Option<u64>,
    pub disk: Option<DiskRate>,
}

/// The node's cgroups, parents of the container cgroups.
#[derive(Debug, Default)]
pub(crate) struct NodeCgroups(Vec<Hierarchy>);

/// Cgroups of one container run; removed when dropped.
#[derive(Debug)]
pub(crate) struct ContainerCgroup(Vec<Hierarchy>);

impl NodeCgroups {
    /// Creates the node's cgroups and records their paths. `memory` is that of the machine.
    pub(crate) fn create(
        tag: &str,
        record: &Path,
        memory: u64,
        disk: Option<DiskRate>,
    ) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut cgroups = Self::default();
        // Proves that limits work here.
        let probe = Limits {
            memory: Some(64 << 20),
            processes: 1024,
            cpu: Some(1000),
            disk,
        };
        let all = of_node(memory);
        for controller in CONTROLLERS
            .into_iter()
            .chain(disk.map(|_| Controller::Disk))
        {
            let created = hierarchy(&mounts, &own, controller)
                .ok_or_else(|| io::Error::other("not mounted"))
                .and_then(|parent| cgroups.add(&parent, tag, record, probe));
            let name = controller.name();
            match created {
                Ok(node) => drop(node.limit_node(all).inspect_err(|error| {
                    tracing::info!(controller = name, %error, "no limit for all containers");
                })),
                Err(error) if controller == Controller::Disk => {
                    let text = format!("cgroup controller {name}: {error}");
                    return Err(io::Error::other(text));
                }
                Err(error) => {
                    tracing::info!(controller = name, %error, "cgroup limits are not enforced");
                }
            }
        }
        Ok(cgroups)
    }

    fn add(
        &mut self,
        parent: &Hierarchy,
        tag: &str,
        record: &Path,
        probe: Limits,
    ) -> io::Result<&Hierarchy> {
        let node = parent.below(&format!("sandbox-standalone-{tag}"));
        fs::create_dir_all(&node.path)?;
        let nodes = self.0.iter().chain([&node]);
        let mut lines: Vec<_> = nodes.map(|node| node.path.to_string_lossy()).collect();
        lines.dedup();
        fs::write(record, lines.join("\n"))?;
        if node.version == Version::Two {
            let enable = format!("+{}", node.controller.name());
            fs::write(node.path.join("cgroup.subtree_control"), enable)?;
        }
        drop(Self(vec![node.clone()]).container("probe", probe)?);
        self.0.push(node);
        self.0.last().ok_or_else(|| io::Error::other("no cgroup"))
    }

    pub(crate) fn container(&self, name: &str, limits: Limits) -> io::Result<ContainerCgroup> {
        let mut container = ContainerCgroup(Vec::new());
        for node in &self.0 {
            let own = node.below(name);
            fs::create_dir_all(&own.path)?;
            container.0.push(own.clone());
            own.limit(limits)?;
        }
        Ok(container)
    }

    /// Changes the limits of a container that runs.
    pub(crate) fn resize(&self, name: &str, limits: Limits) -> io::Result<()> {
        let own = self.0.iter().map(|node| node.below(name));
        own.filter(|own| own.path.is_dir())
            .try_for_each(|own| own.limit(limits))
    }
}

/// Limits of all containers together: some memory and numbers of processes are left to the rest of
/// the machine, so that containers without limits end first.
fn of_node(memory: u64) -> Limits {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
    let paths = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let processes: Option<u64> = paths.into_iter().filter_map(number).min();
    let reserved = (memory / RESERVED_PART).max(MIN_RESERVED);
    Limits {
        memory: memory.checked_sub(reserved).filter(|left| *left > 0),
        processes: processes.unwrap_or(32_768) / 4 * 3,
        ..Limits::default()
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
