//! CPU, memory and disk of the whole sandbox in `/server_info` (`docs/specs/executor.md`, section 2.2):
//! those of the container's cgroup, or else of the processes that the server can see.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::process_tree;

const CGROUPS: &str = "/sys/fs/cgroup";
/// Version 1 writes a number of this size for no limit.
const NO_LIMIT: u64 = 1 << 60;

#[derive(Debug, Serialize)]
pub(super) struct SandboxUsage {
    #[serde(flatten)]
    load: Load,
    disk: Disk,
}

/// CPU time since the start, of which a client takes two readings, and memory now.
#[derive(Debug, PartialEq, Serialize)]
struct Load {
    cpu_seconds: f64,
    memory: Memory,
}

/// Bytes without those of files that the kernel can drop.
#[derive(Debug, PartialEq, Serialize)]
struct Memory {
    used: u64,
    limit: Option<u64>,
}

/// File system of the working directory.
#[derive(Debug, Default, Serialize)]
struct Disk {
    used: u64,
    total: u64,
}

impl SandboxUsage {
    pub(super) fn measure(working_dir: &Path) -> Self {
        let cgroups = Path::new(CGROUPS);
        let load = second_version(cgroups).or_else(|| first_version(cgroups));
        Self {
            load: load.unwrap_or_else(of_processes),
            disk: disk(working_dir),
        }
    }
}

/// The root of all cgroups, which is the whole machine, has no `memory.current`.
fn second_version(group: &Path) -> Option<Load> {
    let used = number(&group.join("memory.current"))?;
    let microseconds = field(&group.join("cpu.stat"), "usage_usec")?;
    Some(Load {
        cpu_seconds: seconds(microseconds, 1e6),
        memory: Memory {
            used: used.saturating_sub(file_cache(group, "inactive_file")),
            limit: number(&group.join("memory.max")),
        },
    })
}

fn first_version(groups: &Path) -> Option<Load> {
    let (memory, cpu) = (groups.join("memory"), groups.join("cpuacct"));
    // Only the root of all cgroups has this file.
    let is_machine = |group: &Path| group.join("release_agent").exists();
    if is_machine(&memory) || is_machine(&cpu) {
        return None;
    }
    let used = number(&memory.join("memory.usage_in_bytes"))?;
    let limit = number(&memory.join("memory.limit_in_bytes"));
    Some(Load {
        cpu_seconds: seconds(number(&cpu.join("cpuacct.usage"))?, 1e9),
        memory: Memory {
            used: used.saturating_sub(file_cache(&memory, "total_inactive_file")),
            limit: limit.filter(|limit| *limit < NO_LIMIT),
        },
    })
}

fn of_processes() -> Load {
    let (ticks, used) = process_tree::usage_of_all();
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    Load {
        cpu_seconds: seconds(ticks, ticks_per_second),
        memory: Memory { used, limit: None },
    }
}

fn disk(directory: &Path) -> Disk {
    let found = rustix::fs::statvfs(directory);
    found.map_or_else(
        |_| Disk::default(),
        |found| Disk {
            used: (found.f_blocks - found.f_bfree) * found.f_frsize,
            total: found.f_blocks * found.f_frsize,
        },
    )
}

/// Files that were not used lately, which `kubectl top` does not count either.
fn file_cache(group: &Path, name: &str) -> u64 {
    field(&group.join("memory.stat"), name).unwrap_or(0)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the number after `name` on a line.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn seconds(count: u64, per_second: f64) -> f64 {
    count as f64 / per_second
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn load(cpu_seconds: f64, used: u64, limit: Option<u64>) -> Load {
        Load {
            cpu_seconds,
            memory: Memory { used, limit },
        }
    }

    #[test]
    fn figures_are_those_of_the_container_in_both_versions() {
        let two = group(&[
            ("memory.current", "1000\n"),
            ("memory.max", "max\n"),
            ("memory.stat", "anon 600\ninactive_file 300\n"),
            ("cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
        ]);
        assert_eq!(second_version(two.path()), Some(load(2.5, 700, None)));
        assert_eq!(first_version(two.path()), None);
        let one = group(&[
            ("memory/memory.usage_in_bytes", "1000\n"),
            ("memory/memory.limit_in_bytes", "4096\n"),
            (
                "memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 300\n",
            ),
            ("cpuacct/cpuacct.usage", "1500000000\n"),
        ]);
        assert_eq!(second_version(one.path()), None);
        assert_eq!(first_version(one.path()), Some(load(1.5, 700, Some(4096))));
        fs::write(
            one.path().join("memory/memory.limit_in_bytes"),
            "9223372036854771712\n",
        )
        .unwrap();
        assert_eq!(first_version(one.path()), Some(load(1.5, 700, None)));
    }

    #[test]
    fn figures_of_the_machine_are_not_taken_for_the_container() {
        let two = group(&[("cpu.stat", "usage_usec 1\n"), ("memory.stat", "anon 1\n")]);
        assert_eq!(second_version(two.path()), None);
        let one = group(&[
            ("memory/memory.usage_in_bytes", "1000\n"),
            ("memory/release_agent", "\n"),
            ("cpuacct/cpuacct.usage", "1\n"),
        ]);
        assert_eq!(first_version(one.path()), None);
        let own = of_processes();
        assert!(own.memory.used > 0, "{own:?}");
    }
}
