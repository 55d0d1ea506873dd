//! Gathers what is known of one sandbox, from the indexes alone.

use std::sync::Arc;

use jiff::Timestamp;

use super::config::Deadlines;
use super::facts::{Facts, Turn};
use super::plan::Subject;
use super::reconcile::Context;
use crate::index::{Entry, Key};
use crate::urls::RUNTIME;

/// One sandbox with everything that a pass over it needs.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    /// The object; its spec has what the pool supplies.
    pub(crate) entry: Arc<Entry>,
    pub(crate) facts: Facts,
    pub(crate) deadlines: Deadlines,
    pub(crate) url: String,
}

/// `None` if the sandbox is gone.
pub(crate) fn observe(context: &Context, key: &Key, now: Timestamp) -> Option<Observed> {
    let entry = context.index.get(key)?;
    let pool = context.pools.of(&key.namespace, &entry.spec);
    let resolved = pool.as_ref().map_or_else(
        || entry.spec.pool.is_none().then(|| entry.spec.clone()),
        |pool| Some(Arc::new(pool.fill(&entry.spec))),
    );
    let pod = context.pods.get(&entry.uid);
    let run = pod.as_ref().map(|pod| pod.run());
    let facts = Facts {
        quiet: run
            .as_ref()
            .and_then(|run| context.idleness.answer(key, run)),
        answer: run
            .as_ref()
            .and_then(|run| context.readiness.answer(key, run)),
        pod: pod.map(Arc::unwrap_or_clone),
        pool_missing: resolved.is_none(),
        pool_revision: pool.map(|pool| pool.revision.clone()),
        lost_pod: context.pods.has_lost(&entry.uid),
        turn: Turn::Has,
        replace_at: context.pace.next(key, now),
    };
    let entry = with_spec(entry, resolved);
    let lifecycle = entry.spec.lifecycle.as_ref();
    Some(Observed {
        deadlines: context.config.defaults.lifecycle.overridden(lifecycle),
        url: context.config.urls(&entry).runtime(&entry.runtime_id),
        facts,
        entry,
    })
}

impl Observed {
    /// This sandbox, as the planner sees it.
    pub(crate) fn subject(&self) -> Subject<'_> {
        let spec = &self.entry.spec;
        let listens = !spec.ports.is_empty() || spec.session.is_some();
        Subject {
            entry: &self.entry,
            deadlines: self.deadlines,
            url: &self.url,
            port: self.entry.port(RUNTIME).filter(|_| listens),
        }
    }
}

fn with_spec(entry: Arc<Entry>, spec: Option<Arc<crds::sandbox::SandboxSpec>>) -> Arc<Entry> {
    match spec {
        Some(spec) if !Arc::ptr_eq(&spec, &entry.spec) => Arc::new(Entry {
            spec,
            ..Arc::unwrap_or_clone(entry)
        }),
        _ => entry,
    }
}
