//! Finds pipes of a tree whose other end is outside of it, such as the container's log.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::process_tree::ProcessTree;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PipeDirection {
    /// The tree reads.
    In,
    /// The tree writes.
    Out,
}

/// A pipe with one end in the tree only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsidePipe {
    /// `pipe:[INODE]`, of the time of the dump.
    pub name: String,
    pub direction: PipeDirection,
    /// Lowest number of its descriptors in the process nearest to the root: 1 or 2 for a log.
    pub descriptor: u32,
}

#[derive(Default)]
struct PipeUse {
    read: bool,
    written: bool,
    descriptor: Option<u32>,
}

/// Lists the pipes of the tree that have only readers or only writers in it.
pub(crate) fn outside_pipes(tree: &ProcessTree) -> Vec<OutsidePipe> {
    let mut pipes: BTreeMap<String, PipeUse> = BTreeMap::new();
    for pid in &tree.pids {
        let mut own = open_pipes(*pid);
        own.sort();
        for (descriptor, name, reads, writes) in own {
            let found = pipes.entry(name).or_default();
            found.read |= reads;
            found.written |= writes;
            found.descriptor.get_or_insert(descriptor);
        }
    }
    let one_ended = pipes
        .into_iter()
        .filter(|(_, pipe)| pipe.read != pipe.written);
    one_ended
        .map(|(name, pipe)| OutsidePipe {
            name,
            direction: if pipe.read {
                PipeDirection::In
            } else {
                PipeDirection::Out
            },
            descriptor: pipe.descriptor.unwrap_or(0),
        })
        .collect()
}

/// Descriptor, name, and whether it reads and writes. A process that ends meanwhile has none.
fn open_pipes(pid: i32) -> Vec<(u32, String, bool, bool)> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let open = descriptors.flatten().filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?.into_os_string();
        let name = target
            .into_string()
            .ok()
            .filter(|name| name.starts_with("pipe:["))?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let access = u32::from_str_radix(flags.trim(), 8).ok()? & 3;
        Some((number, name, access != 1, access != 0))
    });
    open.collect()
}
