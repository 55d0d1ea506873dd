//! Free space of the file system with the Pods. If little is left, a Pod is evicted, as with the
//! kubelet's `nodefs.available<10%`; less is enough for a large disk.

use std::path::Path;

use rustix::fs::statvfs;

/// Largest threshold: a developer's disk is often nine tenths full.
const MAX_THRESHOLD: u64 = 4 << 30;

/// Bytes of a file system that has too few left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shortage {
    pub threshold: u64,
    pub available: u64,
}

impl Shortage {
    fn of(size: u64, available: u64) -> Option<Self> {
        let threshold = (size / 10).min(MAX_THRESHOLD);
        (available < threshold).then_some(Self {
            threshold,
            available,
        })
    }
}

/// The shortage on the file system of `path`, if there is one.
pub(super) fn shortage(path: &Path) -> Option<Shortage> {
    let found = statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Shortage::of(bytes(found.f_blocks), bytes(found.f_bavail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_begins_below_a_tenth_or_four_gibibytes() {
        const GIB: u64 = 1 << 30;
        for (size, available, expected) in [
            (10 * GIB, GIB, None),
            (10 * GIB, GIB - 1, Some(GIB)),
            (1000 * GIB, 4 * GIB, None),
            (1000 * GIB, 4 * GIB - 1, Some(4 * GIB)),
            (0, 0, None),
        ] {
            let found = Shortage::of(size, available).map(|short| short.threshold);
            assert_eq!(found, expected, "{available} of {size}");
        }
    }
}
