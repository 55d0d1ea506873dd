//! Collects the facts about one Sandbox from the indexes.

use std::sync::Arc;

use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::{DesiredState, SandboxSpec};
use jiff::Timestamp;

use crate::config::Deadlines;
use crate::context::Context;
use crate::facts::{Facts, PodFacts, QuotaDecision, SourceState, WarmMatch, WarmSupply};
use crate::pod_features::PodFeatures;
use crate::pools::template::warm_template;
use crate::pools::{Pool, fill_from_snapshot};
use crate::reconcile::build::command::{effective_command, plugins};
use crate::reconcile::build::persistence::{PersistenceObstacle, level, obstacle};
use crate::reconcile::build::runtime_class;
use crate::reconcile::init_message;
use crate::reconcile::plan::PlanInput;
use crate::snapshots::source::source_state;
use shared::index::{Entry, Key};

/// One Sandbox with everything that a reconcile needs.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    /// The object, with the values of its pool filled in.
    pub(crate) entry: Arc<Entry>,
    pub(crate) facts: Facts,
    pub(crate) deadlines: Deadlines,
    pub(crate) url: String,
    /// Level that a pause is to keep.
    pub(crate) level: PersistenceLevel,
    /// Reason for which Pods of the spec keep less than it asks for.
    pub(crate) persistence_obstacle: Option<PersistenceObstacle>,
    /// Names of the plugins of the command.
    pub(crate) plugins: Vec<String>,
}

/// Returns `None` if the Sandbox was deleted.
pub(super) fn observe(context: &Context, key: &Key, now: Timestamp) -> Option<Observed> {
    let mut observed = snapshot(context, key, now)?;
    let defaults = &context.config.defaults;
    if observed.facts.pod.is_none() {
        observed.facts.warm = warm_supply(context, &observed.entry, &observed.facts.source);
    }
    let uses_pod = observed.uses_pod();
    observed.facts.quota = context.quota.request(&observed.entry, uses_pod, defaults);
    Some(observed)
}

/// Warm Pods that fit a sandbox without a Pod, which is to begin with `source`.
fn warm_supply(context: &Context, entry: &Entry, source: &SourceState) -> WarmSupply {
    let spec = &entry.spec;
    let starts = entry.desired_state() == DesiredState::Running && !entry.deleting;
    // The workspace of an earlier start is not that of a warm Pod.
    let is_new = entry.status.workspace_claim.is_none();
    let source = source.volume();
    let has_source = spec.source.is_some() == source.is_some();
    let fits = starts && spec.command.is_some() && is_new;
    let keys = &context.keys;
    // Warm Pods have the current keys, and clients the session key of the keys at creation.
    let has_keys = std::ptr::eq(keys.of(entry.created_at), keys.of(None));
    if !fits || !has_source || !has_keys {
        return WarmSupply::None;
    }
    let mut pools = context.pools.claimable(entry);
    pools.retain(|(key, pool)| context.warm_pods.has_any(key) || !pool.is_plain());
    if pools.is_empty() {
        return WarmSupply::None;
    }
    let Ok(shape) = context.warm_pod_builder().shape(spec, source) else {
        return WarmSupply::None;
    };
    let has_ready = |pool: &Key| {
        let ahead = context.waiting.ahead_of(pool, entry);
        let warm_pods = &context.warm_pods;
        warm_pods.has_ready(pool, &shape, ahead, &entry.uid)
    };
    if let Some((pool, _)) = pools.iter().find(|(pool, _)| has_ready(pool)) {
        let pool = pool.name.clone();
        return WarmSupply::Ready(WarmMatch { pool, shape });
    }
    let has_shape = |key: &Key, pool: &Pool| {
        let template = warm_template(context, key, pool);
        template.is_ok_and(|template| template.shape == shape)
    };
    pools.retain(|(key, pool)| !pool.is_plain() && has_shape(key, pool));
    pools
        .first()
        .map_or(WarmSupply::None, |(key, pool)| WarmSupply::Exhausted {
            pool: key.name.clone(),
            max_wait: pool.max_wait(),
        })
}

/// Adds the rejection of a resize, which the Pod does not report.
fn with_resize_problem(context: &Context, key: &Key, mut pod: PodFacts) -> PodFacts {
    if pod.is_small
        && let Some(problem) = context.memory.resize_problem(key, &pod.uid)
    {
        pod.resize_problem = Some(problem);
    }
    pod
}

/// Restores the quota from the indexes.
pub(crate) fn restore_quota(context: &Context) {
    let known = context.index.list(|entry| entry.session().is_some());
    let known: Vec<_> = known
        .iter()
        .filter_map(|entry| snapshot(context, &entry.key, context.clock.now()))
        .collect();
    let sandboxes = known
        .iter()
        .map(|observed| (&*observed.entry, observed.uses_pod()));
    context.quota.restore(sandboxes, &context.config.defaults);
}

/// Reads the indexes, without a decision about quota.
pub(crate) fn snapshot(context: &Context, key: &Key, now: Timestamp) -> Option<Observed> {
    let entry = context.index.get(key)?;
    let pool = context.pools.find(&key.namespace, &entry.spec);
    let named = entry.status.pod_name.as_deref();
    let pod = context.pods.get(key, &entry.uid, named);
    let is_claimed = pod.as_ref().is_some_and(|pod| pod.was_warm());
    let claimed_from = context.memory.claimed_from(key).filter(|_| is_claimed);
    let kept = entry.status.pool.as_ref().or(claimed_from.as_deref());
    let kept = kept.and_then(|kept| fill_from_snapshot(&entry.spec, kept));
    let filled = kept.or_else(|| Some(pool.as_ref()?.fill(&entry.spec)));
    let unpooled = || entry.spec.pool.is_none().then(|| entry.spec.clone());
    let resolved = filled.map(Arc::new).or_else(unpooled);
    let surplus = pod.as_ref();
    let surplus = surplus.and_then(|pod| context.pods.surplus(key, &entry.uid, &pod.uid));
    let run = pod.as_ref().map(|pod| pod.container_run());
    let paused_at = entry.status.paused_at.as_ref().map(|at| at.0);
    let mut facts = Facts {
        idle: run
            .as_ref()
            .and_then(|run| context.idle_checker.report(key, run)),
        readiness: run
            .as_ref()
            .and_then(|run| context.readiness.result(key, run)),
        start: run
            .as_ref()
            .and_then(|run| context.readiness.start(key, run))
            .unwrap_or_default(),
        save: run
            .as_ref()
            .and_then(|run| context.saver.progress(key, run)),
        pod: pod.map(|pod| with_resize_problem(context, key, Arc::unwrap_or_clone(pod))),
        surplus: surplus.map(Arc::unwrap_or_clone),
        source: source(context, &entry, resolved.as_deref()),
        pool_missing: resolved.is_none(),
        pool_revision: pool.as_ref().map(|pool| pool.revision.clone()),
        pool: claimed_from.or_else(|| pool.map(|pool| pool.snapshot.clone())),
        warm: WarmSupply::None,
        adopted_claim: context.memory.adopted_claim(key),
        waiting_pods: paused_at.map_or(0, |at| context.memory.waiting_pods(key, at)),
        had_lost_pod: context.pods.has_lost_pod(&entry.uid),
        quota: QuotaDecision::Admitted,
        replace_at: context.memory.earliest_replacement(key, now),
        orphan: context
            .pods
            .orphan(key, Some(&entry.uid))
            .map(Arc::unwrap_or_clone),
        spec_changed: false,
        message_written_at: context.memory.message_written_at(key),
        starts_in_progress: context.index.starts_in_progress(),
        isolation_due: context.isolation.is_due(&key.namespace, now),
    };
    let entry = with_spec(entry, resolved);
    let made_from = facts
        .pod
        .as_ref()
        .and_then(|pod| pod.spec_revision.as_ref());
    facts.spec_changed =
        made_from.is_some_and(|revision| revision.differs_from(entry.generation, &entry.spec));
    let lifecycle = entry.spec.lifecycle.as_ref();
    let command = effective_command(&entry.spec, context.config.native_executor);
    let pod = facts.pod.as_ref();
    let features = match pod {
        Some(pod) => PodFeatures {
            rejected: pod.rejected_persistence,
            ..context.pod_features(pod.runtime_class.as_deref()).proven()
        },
        None => context.pod_features(runtime_class::of_pod(&entry.spec, &context.config, false)),
    };
    let level = level(&entry, &context.config, features, pod.map(PodFacts::level));
    Some(Observed {
        deadlines: context.config.defaults.lifecycle.overridden(lifecycle),
        url: context.config.urls(&entry).runtime(&entry.runtime_id),
        level,
        persistence_obstacle: obstacle(&entry, level, &context.config, features),
        plugins: plugins::names(&command.unwrap_or_default()),
        facts,
        entry,
    })
}

impl Observed {
    /// Returns whether the sandbox uses a Pod, which counts for its quota.
    fn uses_pod(&self) -> bool {
        let pod = self.facts.pod.as_ref();
        pod.is_some_and(|pod| !pod.waits_for_resume(&self.entry.status))
    }

    /// Input of the planner.
    pub(crate) fn plan_input(&self) -> PlanInput<'_> {
        let command = self.entry.spec.command.as_deref().unwrap_or_default();
        PlanInput {
            entry: &self.entry,
            deadlines: self.deadlines,
            url: &self.url,
            probe: init_message::probe(&self.entry, command),
            level: self.level,
            persistence_obstacle: self.persistence_obstacle,
            plugins: &self.plugins,
        }
    }
}

/// State of the snapshot that a sandbox of this spec begins with, until it has been ready.
fn source(context: &Context, entry: &Entry, spec: Option<&SandboxSpec>) -> SourceState {
    let source = spec.and_then(|spec| spec.source.as_ref());
    let Some(source) = source.filter(|_| entry.status.ready_at.is_none()) else {
        return SourceState::None;
    };
    let tenant = entry.session().map(|session| session.tenant.as_str());
    source_state(context, &entry.key, source, tenant)
}

fn with_spec(entry: Arc<Entry>, spec: Option<Arc<SandboxSpec>>) -> Arc<Entry> {
    match spec {
        Some(spec) if !Arc::ptr_eq(&spec, &entry.spec) => Arc::new(Entry {
            spec,
            ..Arc::unwrap_or_clone(entry)
        }),
        _ => entry,
    }
}
