//! One pass over one sandbox: observe, plan, build and apply, report.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;

use super::admission::Admission;
use super::apply::{self, ApplyError};
use super::build::Blueprint;
use super::config::ControllerConfig;
use super::facts::Turn;
use super::idleness::Idleness;
use super::last_words;
use super::observe::{Observed, observe};
use super::pace::Pace;
use super::plan::{self, Plan};
use super::pods::Pods;
use super::pools::Pools;
use super::readiness::Readiness;
use super::refusals::Refusals;
use super::report::{ReportError, report};
use crate::clock::Clock;
use crate::index::{Entry, Index, Key};
use crate::keys::Keys;
use crate::kubernetes::apply::CreateError;

/// Everything that passes share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: ControllerConfig,
    pub(crate) keys: Arc<Keys>,
    pub(crate) control_key: String,
    pub(crate) clock: Clock,
    pub(crate) index: Arc<Index>,
    pub(crate) pods: Arc<Pods>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) idleness: Arc<Idleness>,
    pub(crate) pace: Pace,
    pub(crate) refusals: Refusals,
    pub(crate) admission: Admission,
}

/// Why a pass failed and is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("cannot apply: {0}")]
    Apply(#[from] ApplyError),
    #[error("cannot report: {0}")]
    Report(#[from] ReportError),
    /// The user has been told; there is a deadline all the same.
    #[error("cannot apply: {error}")]
    Refused {
        #[source]
        error: ApplyError,
        next: Option<Timestamp>,
    },
}

impl ReconcileError {
    /// Whether the API server is to blame and not the object: it will not last, and no watch tells when
    /// it is over.
    pub(crate) fn is_of_server(&self) -> bool {
        match self {
            Self::Apply(ApplyError::Call(error) | ApplyError::Create(CreateError::Call(error)))
            | Self::Report(ReportError::Call(error)) => error.is_of_server(),
            Self::Refused { error, .. } => {
                matches!(error, ApplyError::Create(CreateError::Ending { .. }))
            }
            Self::Apply(_) | Self::Report(_) => false,
        }
    }

    /// When to look again at the latest, whatever the pause after a failure.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        match self {
            Self::Refused { next, .. } => *next,
            _ => None,
        }
    }
}

/// Makes one step towards what the Sandbox asks for. Returns when to look again.
pub(crate) async fn reconcile(
    context: &Arc<Context>,
    key: &Key,
) -> Result<Option<Timestamp>, ReconcileError> {
    let now = context.clock.now();
    let Some(mut observed) = observe(context, key, now) else {
        context.forget(key);
        return Ok(None);
    };
    observed.facts.turn = context.turn(&observed);
    let mut plan = plan::plan(&observed.subject(), &observed.facts, now);
    apply::ask(context, &observed, plan.asks);
    apply::ask_quiet(context, &observed, plan.asks_quiet);
    last_words::add(context, &observed, &mut plan).await;
    match carry_out(context, &observed, &plan).await {
        Ok(()) if plan.reports => report(context, &observed.entry, &plan.status).await?,
        Ok(()) => {}
        Err(error) => return refuse(context, &observed, error, plan.next, now).await,
    }
    context.refusals.forget(key);
    if plan.lost {
        context.pace.note(key, now);
    }
    Ok(plan.next)
}

async fn carry_out(context: &Context, observed: &Observed, plan: &Plan) -> Result<(), ApplyError> {
    for action in &plan.actions {
        apply::apply(context, observed, action).await?;
    }
    Ok(())
}

/// Reports what the user has to know; everything else is tried again.
async fn refuse(
    context: &Context,
    observed: &Observed,
    error: ApplyError,
    next: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Timestamp>, ReconcileError> {
    let Some(refusal) = error.refusal() else {
        return Err(error.into());
    };
    let status = plan::refuse(&observed.subject(), &observed.facts, &refusal, now);
    report(context, &observed.entry, &status).await?;
    if refusal.fatal {
        return Ok(None);
    }
    let key = &observed.entry.key;
    context.refusals.note(key, &context.index);
    Err(ReconcileError::Refused { error, next })
}

impl Context {
    pub(crate) fn blueprint<'a>(&'a self, entry: &'a Entry) -> Blueprint<'a> {
        Blueprint {
            entry,
            config: &self.config,
            control_key: &self.control_key,
        }
    }

    /// Whether the sandbox may have a Pod, by the limits of its tenant.
    fn turn(&self, observed: &Observed) -> Turn {
        let has_pod = observed.facts.pod.is_some();
        let defaults = &self.config.defaults;
        self.admission.ask(&observed.entry, has_pod, defaults)
    }

    /// Begins to decide whose turn it is, with who has a Pod now.
    pub(crate) fn restore_turns(&self) {
        let known = self.index.list(|entry| entry.session().is_some());
        let known: Vec<_> = known
            .iter()
            .filter_map(|entry| observe(self, &entry.key, self.clock.now()))
            .collect();
        let sandboxes = known
            .iter()
            .map(|observed| (&*observed.entry, observed.facts.pod.is_some()));
        self.admission.restore(sandboxes, &self.config.defaults);
    }

    fn forget(&self, key: &Key) {
        self.admission.forget(key);
        self.readiness.forget(key);
        self.idleness.forget(key);
        self.pace.forget(key);
        self.refusals.forget(key);
    }
}
