//! Old contents of files for `undo_edit`. They are in one unnamed file, which disappears with the
//! process; only their offsets are in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, MemfdFlags};

use crate::serve::files::unnamed;

/// Undo steps of one file.
const MAX_STEPS: usize = 10;
/// Undo steps of all files.
const MAX_ENTRIES: usize = 2000;
const MAX_BYTES: u64 = 256 << 20;

#[derive(Debug)]
pub(super) struct History {
    store: Option<File>,
    /// Oldest first.
    entries: VecDeque<HistoryEntry>,
    bytes: u64,
    end: u64,
}

#[derive(Debug)]
struct HistoryEntry {
    path: PathBuf,
    offset: u64,
    length: u64,
}

impl History {
    pub(super) fn new() -> Self {
        let store = unnamed(&std::env::temp_dir())
            .or_else(|_| memory())
            .inspect_err(|error| tracing::warn!(%error, "undo_edit is not available"));
        Self {
            store: store.ok(),
            entries: VecDeque::new(),
            bytes: 0,
            end: 0,
        }
    }

    pub(super) fn push(&mut self, path: &Path, content: &[u8]) {
        let length = content.len() as u64;
        let Some(store) = &self.store else {
            return;
        };
        if let Err(error) = store.write_all_at(content, self.end) {
            tracing::warn!(%error, "cannot record an edit for undo_edit");
            // Without this step, older ones would restore another state.
            self.drop_where(|entry| entry.path == path, usize::MAX);
            return;
        }
        self.entries.push_back(HistoryEntry {
            path: path.to_path_buf(),
            offset: self.end,
            length,
        });
        self.end += length;
        self.bytes += length;
        let steps = self
            .entries
            .iter()
            .filter(|entry| entry.path == path)
            .count();
        self.drop_where(|entry| entry.path == path, steps.saturating_sub(MAX_STEPS));
        while self.bytes > MAX_BYTES || self.entries.len() > MAX_ENTRIES {
            self.drop_where(|_| true, 1);
        }
    }

    pub(super) fn last(&self, path: &Path) -> Option<Vec<u8>> {
        let entry = self.entries.iter().rev().find(|entry| entry.path == path)?;
        let mut content = vec![0; usize::try_from(entry.length).ok()?];
        let store = self.store.as_ref()?;
        store.read_exact_at(&mut content, entry.offset).ok()?;
        Some(content)
    }

    /// Removes the content that `last` returns.
    pub(super) fn pop(&mut self, path: &Path) {
        if let Some(index) = self.entries.iter().rposition(|entry| entry.path == path) {
            self.remove(index);
        }
    }

    /// Removes the oldest `count` entries that match.
    fn drop_where(&mut self, matches: impl Fn(&HistoryEntry) -> bool, count: usize) {
        for _ in 0..count {
            let Some(index) = self.entries.iter().position(&matches) else {
                return;
            };
            self.remove(index);
        }
    }

    fn remove(&mut self, index: usize) {
        let (Some(entry), Some(store)) = (self.entries.remove(index), &self.store) else {
            return;
        };
        self.bytes -= entry.length;
        // A file system without holes frees space below.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(store, hole, entry.offset, entry.length.max(1));
        self.end = self
            .entries
            .iter()
            .map(|entry| entry.offset + entry.length)
            .max()
            .unwrap_or(0);
        let _ = store.set_len(self.end);
    }
}

fn memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("history", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn each_file_keeps_ten_steps() {
        let mut history = History::new();
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        history.push(b, b"other");
        for step in 0..12 {
            history.push(a, format!("step {step}").as_bytes());
        }
        for step in (2..12).rev() {
            assert_eq!(history.last(a).unwrap(), format!("step {step}").as_bytes());
            history.pop(a);
        }
        assert_eq!(history.last(a), None);
        assert_eq!(history.last(b).unwrap(), b"other");
    }

    #[test]
    fn history_is_bounded_and_frees_space() {
        let mut history = History::new();
        let content = vec![b'x'; 1 << 20];
        for round in 0..600 {
            history.push(Path::new(&format!("/{}", round % 100)), &content);
        }
        assert!(history.bytes <= MAX_BYTES);
        assert!(history.last(Path::new("/99")).is_some());
        let used = history.store.as_ref().unwrap().metadata().unwrap().blocks() * 512;
        assert!(used <= MAX_BYTES + (2 << 20), "{used}");
        for _ in 0..10 {
            for file in 0..100 {
                history.pop(Path::new(&format!("/{file}")));
            }
        }
        assert_eq!((history.bytes, history.end), (0, 0));
        history.push(Path::new("/big"), b"");
        assert_eq!(history.last(Path::new("/big")).unwrap(), b"");
    }
}
