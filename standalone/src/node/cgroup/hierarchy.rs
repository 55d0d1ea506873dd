//! Places of the cgroups of a controller, and the files of its limits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Limits;

/// CPU time is granted per period of this many microseconds.
const CPU_PERIOD: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Processes,
    Cpu,
    Disk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// A cgroup of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) controller: Controller,
    pub(super) path: PathBuf,
    pub(super) version: Version,
}

impl Controller {
    /// Name in version 2.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
            Self::Disk => "io",
        }
    }

    fn first_name(self) -> &'static str {
        match self {
            Self::Disk => "blkio",
            other => other.name(),
        }
    }
}

impl Hierarchy {
    /// A cgroup below this one.
    pub(super) fn below(&self, name: &str) -> Self {
        Self {
            path: self.path.join(name),
            ..self.clone()
        }
    }

    /// Sets the limits of a container.
    pub(super) fn limit(&self, limits: Limits) -> io::Result<()> {
        for (file, value) in self.files(limits) {
            self.write(file, &value)?;
            if file == "memory.max" {
                let _ = self.write("memory.swap.max", "0");
                // Kills the whole container on OOM, as the kubelet does.
                let _ = self.write("memory.oom.group", "1");
            }
        }
        Ok(())
    }

    /// Limits all containers together, without a say in which of them the kernel ends.
    pub(super) fn limit_node(&self, limits: Limits) -> io::Result<()> {
        let mut files = self.files(limits).into_iter();
        files.try_for_each(|(file, value)| self.write(file, &value))
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.path.join(file), value)
    }

    fn files(&self, limits: Limits) -> Vec<(&'static str, String)> {
        let memory = limits.memory.map(|bytes| bytes.to_string());
        let quota = limits.cpu.map(|cpu| (cpu * CPU_PERIOD / 1000).max(1000));
        let mut files = Vec::new();
        let mut add = |file, value: Option<String>| files.extend(value.map(|value| (file, value)));
        match (self.controller, self.version) {
            (Controller::Processes, _) => add("pids.max", Some(limits.processes.to_string())),
            (Controller::Memory, Version::One) => add("memory.limit_in_bytes", memory),
            (Controller::Memory, Version::Two) => add("memory.max", memory),
            (Controller::Cpu, Version::One) => {
                add("cpu.cfs_quota_us", quota.map(|quota| quota.to_string()));
            }
            (Controller::Cpu, Version::Two) => {
                add(
                    "cpu.max",
                    quota.map(|quota| format!("{quota} {CPU_PERIOD}")),
                );
            }
            (Controller::Disk, Version::One) => {
                let rate = limits
                    .disk
                    .map(|rate| format!("{} {}", rate.device, rate.bytes));
                add("blkio.throttle.read_bps_device", rate.clone());
                add("blkio.throttle.write_bps_device", rate);
            }
            (Controller::Disk, Version::Two) => {
                let rate = limits.disk.map(|rate| {
                    let bytes = rate.bytes;
                    format!("{} rbps={bytes} wbps={bytes}", rate.device)
                });
                add("io.max", rate);
            }
        }
        files
    }
}

/// Finds the parent cgroup: with version 1 below the process's own cgroup, with version 2 at the
/// root, because a v2 cgroup with processes cannot have children.
pub(super) fn hierarchy(mounts: &str, own: &str, controller: Controller) -> Option<Hierarchy> {
    let fields = |line: &str| -> Option<(PathBuf, PathBuf, String, String)> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?.into(), left.next()?.into());
        let mut right = right.split(' ');
        let kind = right.next()?.to_owned();
        Some((root, point, kind, right.nth(1)?.to_owned()))
    };
    let mounts: Vec<_> = mounts.lines().filter_map(fields).collect();
    let is_listed = |list: &str| list.split(',').any(|name| name == controller.first_name());
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

#[cfg(test)]
mod tests {
    use super::super::{Device, DiskRate};
    use super::*;

    #[test]
    fn hierarchy_finds_both_cgroup_versions() {
        let one = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                   32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                   31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let old = "38 31 0:35 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n";
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
            (
                one,
                own,
                Controller::Disk,
                Some(("/sys/fs/cgroup/unified", second)),
            ),
            (
                old,
                "3:blkio:/\n",
                Controller::Disk,
                Some(("/sys/fs/cgroup/blkio/", first)),
            ),
            ("", "", memory, None),
        ] {
            let found = hierarchy(mounts, own, controller);
            let found = found.as_ref();
            let found = found.map(|found| (found.path.to_str().unwrap(), found.version));
            assert_eq!(found, expected, "{controller:?}");
        }
    }

    #[test]
    fn disk_rate_is_written_for_its_device() {
        let limits = Limits {
            disk: Some(DiskRate {
                device: Device(254, 1),
                bytes: 1024,
            }),
            ..Limits::default()
        };
        let files = |version| {
            let hierarchy = Hierarchy {
                controller: Controller::Disk,
                path: PathBuf::new(),
                version,
            };
            hierarchy.files(limits)
        };
        let rate = || "254:1 1024".to_owned();
        let first = [
            "blkio.throttle.read_bps_device",
            "blkio.throttle.write_bps_device",
        ];
        assert_eq!(files(Version::One), first.map(|file| (file, rate())));
        let second = ("io.max", "254:1 rbps=1024 wbps=1024".to_owned());
        assert_eq!(files(Version::Two), [second]);
    }
}
