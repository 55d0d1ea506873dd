//! First part of a stream: the present state of all sandboxes, or of those that have changed since a
//! cursor. It is read in pages, each when the client has taken the last one.

#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use shared::index::{Cursor, Deletion, Entry, Index, Key};

use super::message::{self, Change};
use super::{CHANGED, Describe, LISTED};
use crate::builds::is_interrupted;

/// Sandboxes of one page, about 1 KiB each.
const PAGE_LENGTH: usize = 32;
/// Time for the watch of this replica to reach a cursor of another one.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
/// Finished builds of this age are told at the beginning of a stream.
const RECENT_BUILD: SignedDuration = SignedDuration::from_mins(10);

/// Sandboxes of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) tenant: String,
    pub(crate) namespace: String,
    /// The only sandbox of the stream.
    pub(crate) runtime_id: Option<String>,
}

/// Position in the first part of a stream.
#[derive(Debug)]
pub(crate) struct Backlog {
    scope: Scope,
    /// Cursor of the client, if it can continue.
    since: Option<Cursor>,
    /// Deletions since then.
    deletions: Vec<Deletion>,
    /// Position at the beginning, of which the client is told at the end.
    begin: Cursor,
    /// Last key of each page, and the last change that the page includes.
    pages: Vec<(Key, u64)>,
    is_complete: bool,
}

impl Scope {
    /// Returns whether a sandbox of the tenant belongs to the stream.
    pub(super) fn includes(&self, key: &Key) -> bool {
        key.namespace == self.namespace && self.runtime_id.as_ref().is_none_or(|id| *id == key.name)
    }

    /// Returns the keys after the last one. Sandboxes of sessions are named after their id.
    fn range(&self, after: Option<&Key>) -> (Bound<Key>, Bound<Key>) {
        let key = |name: &str| Key {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        };
        let only = self.runtime_id.as_deref();
        let begin = || Bound::Included(key(only.unwrap_or_default()));
        let after = after.cloned().map_or_else(begin, Bound::Excluded);
        (
            after,
            only.map_or(Bound::Unbounded, |id| Bound::Included(key(id))),
        )
    }
}

impl Backlog {
    /// Begins after a cursor, or with a list if the cursor is too old or of another cluster. A cursor
    /// of a replica that is ahead is waited for.
    pub(crate) async fn begin(index: &Index, scope: Scope, since: Option<Cursor>) -> Self {
        if let Some(since) = since {
            index.wait_version(since.version, CATCH_UP_TIMEOUT).await;
        }
        // Before the deletions, so that the next stream sees at least what this one saw.
        let begin = index.cursor();
        let deletions = since.and_then(|since| index.deletions_after(since, &scope.tenant));
        Self {
            since: since.filter(|_| deletions.is_some()),
            deletions: deletions.unwrap_or_default(),
            begin,
            scope,
            pages: Vec::new(),
            is_complete: false,
        }
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the next part as text; the last one ends with `synced` or `resumed`. It may be empty.
    pub(super) fn next_part(&mut self, index: &Index, describe: &dyn Describe) -> String {
        let mut text: String = self.take_deletions();
        let after = self.pages.last().map(|(key, _)| key);
        let range = self.scope.range(after);
        let page = index.page_of_tenant(&self.scope.tenant, range, PAGE_LENGTH);
        for entry in &page.entries {
            text.extend(self.describe(entry, describe));
        }
        let last = page.entries.last().map(|entry| &entry.key).or(after);
        let last = last.cloned().unwrap_or_default();
        self.is_complete = page.entries.len() < PAGE_LENGTH;
        self.pages.push((last, page.sequence));
        if self.is_complete {
            let name = self.since.map_or("synced", |_| "resumed");
            text += &message::end_of_backlog(name, self.begin);
        }
        text
    }

    fn take_deletions(&mut self) -> String {
        let deletions = std::mem::take(&mut self.deletions).into_iter();
        let deletions = deletions.filter(|deletion| self.scope.includes(&deletion.key));
        deletions
            .map(|deletion| message::deletion(&deletion))
            .collect()
    }

    fn describe(&self, entry: &Entry, describe: &dyn Describe) -> Option<String> {
        if !self.scope.includes(&entry.key) {
            return None;
        }
        let Some(since) = self.since else {
            return Some(message::runtime(&describe.runtime(entry, LISTED)?));
        };
        let is_later = entry
            .version()
            .is_none_or(|version| version > since.version);
        let data = is_later
            .then(|| describe.runtime(entry, CHANGED))
            .flatten()?;
        Some(message::runtime(&data))
    }

    /// Returns whether the stream needs a change that happened meanwhile. Pages that are still to be
    /// read include it, unless it is a deletion; pages that were read may include it.
    pub(super) fn needs(&mut self, change: &Change) -> bool {
        let Change {
            key,
            sequence,
            is_removed,
        } = change;
        if !self.scope.includes(key) {
            return false;
        }
        let Some((_, newest)) = self.pages.last() else {
            return self.is_complete || *is_removed;
        };
        if self.is_complete && sequence > newest {
            // All later ones are newer as well.
            self.pages = Vec::new();
            return true;
        }
        let page = self.pages.partition_point(|(end, _)| end < key);
        // The last page ends behind all keys.
        let last = if self.is_complete {
            self.pages.len() - 1
        } else {
            page
        };
        let read = self.pages.get(page.min(last));
        read.map_or(*is_removed, |(_, read)| sequence > read)
    }
}

/// Describes the builds that go on, and those that have ended a moment ago.
pub(super) fn recent_builds(builds: &[Arc<ImageBuild>], describe: &dyn Describe) -> String {
    let now = Timestamp::now();
    let is_recent = |build: &&Arc<ImageBuild>| {
        let status = build.status.as_ref();
        let finished_at = status.and_then(|status| status.finished_at.as_ref());
        let ended_at = match finished_at {
            None if !is_interrupted(build, now) => return true,
            None => build.creation_timestamp(),
            finished_at => finished_at.cloned(),
        };
        ended_at.is_some_and(|at| now.duration_since(at.0) < RECENT_BUILD)
    };
    let texts = builds.iter().filter(is_recent);
    let texts = texts.filter_map(|build| describe.build(build));
    texts.map(|data| message::build(&data)).collect()
}
