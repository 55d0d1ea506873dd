//! Comparison of a tree with its list: what has changed or is new, and what is gone.

use super::list::{FileList, Listed, Records};
use super::walk::{Found, Tree, compare, walk};
use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::mounts::is_at_or_below;

#[derive(Debug)]
pub(super) enum Change<'a> {
    /// A file that is new or has changed.
    Present(Found<'a>),
    /// Path of a file that is gone; not for files in a directory that is gone itself.
    Gone(&'a [u8]),
}

/// Calls `visit` for each change in the order of the walk. Returns the number of directories that
/// are too deep.
pub(super) fn visit(
    tree: &Tree,
    list: &FileList,
    deadline: Deadline,
    mut visit: impl FnMut(Change<'_>) -> Result<(), StateError>,
) -> Result<u64, StateError> {
    let mut comparison = Comparison::new(tree, list.records()?)?;
    let too_deep = walk(tree, deadline, |found| {
        comparison.skip_to(Some(found.path), &mut visit)?;
        if comparison.has_changed(&found)? {
            visit(Change::Present(found))?;
        }
        Ok(())
    })?;
    comparison.skip_to(None, &mut visit)?;
    Ok(too_deep)
}

struct Comparison<'a> {
    tree: &'a Tree,
    records: Records,
    next: Option<Listed>,
    /// Path below which nothing is reported as gone: it is no directory any more.
    covered: Option<Vec<u8>>,
}

impl<'a> Comparison<'a> {
    fn new(tree: &'a Tree, mut records: Records) -> Result<Self, StateError> {
        let next = records.next()?;
        Ok(Self {
            tree,
            records,
            next,
            covered: None,
        })
    }

    fn advance(&mut self) -> Result<Option<Listed>, StateError> {
        let next = self.records.next()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    /// Reports records before a path, or all that are left, as gone.
    fn skip_to(
        &mut self,
        path: Option<&[u8]>,
        visit: &mut impl FnMut(Change<'_>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        loop {
            let is_before =
                |record: &Listed| path.is_none_or(|path| compare(&record.path, path).is_lt());
            if !self.next.as_ref().is_some_and(is_before) {
                return Ok(());
            }
            let Some(record) = self.advance()? else {
                return Ok(());
            };
            let covered = self.covered.as_ref();
            let is_covered = covered.is_some_and(|top| is_at_or_below(&record.path, top));
            // A mount point that is new hides what was there.
            if is_covered || self.tree.is_excluded(&record.path) {
                continue;
            }
            visit(Change::Gone(&record.path))?;
            self.covered = Some(record.path);
        }
    }

    fn has_changed(&mut self, found: &Found<'_>) -> Result<bool, StateError> {
        if self
            .next
            .as_ref()
            .is_none_or(|record| record.path != found.path)
        {
            return Ok(true);
        }
        let Some(record) = self.advance()? else {
            return Ok(true);
        };
        let has_changed = record.differs_from(found);
        if record.is_directory && !found.kind().is_dir() {
            self.covered = Some(record.path);
        }
        Ok(has_changed)
    }
}
