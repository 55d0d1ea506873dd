//! Spans of reconciles and of starts. A start is known when it has ended, so its span and those of
//! its stages are made then, from the times of the Pod.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::context::Context;
use crate::facts::PodFacts;
use shared::index::{Entry, Key};
use shared::traces::{Span, Traces};

/// Stage of a start: name, begin and end.
type Stage = (&'static str, Timestamp, Timestamp);

/// Starts the span of a reconcile. `None` if spans are not exported or this one is not sampled.
pub(super) fn start_reconcile(context: &Context, key: &Key) -> Option<Span> {
    let traces = context.config.vitals.traces.get()?;
    let mut span = traces.internal_span("reconcile", None, None)?;
    set_key(&mut span, key);
    Some(span)
}

/// Adds the end of a reconcile: the category of its error, and the phases around it.
pub(super) fn finish_reconcile(
    span: &mut Span,
    before: Option<&Entry>,
    after: Option<&Entry>,
    failure: Option<&'static str>,
) {
    span.set("reconcile.result", failure.unwrap_or("ok"));
    if let Some(category) = failure {
        span.fail(category);
    }
    for (name, entry) in [
        ("sandbox.phase.before", before),
        ("sandbox.phase.after", after),
    ] {
        if let Some(entry) = entry {
            span.set(name, format!("{:?}", entry.status.phase));
        }
    }
}

/// Records a start that has just succeeded after `latency`. The first start belongs to the trace of
/// the request that created the sandbox.
pub(super) fn record_start(
    context: &Context,
    entry: &Entry,
    kind: &'static str,
    latency: Duration,
) {
    let Some(traces) = context.config.vitals.traces.get() else {
        return;
    };
    let ready = context.clock.now();
    let latency = SignedDuration::try_from(latency).unwrap_or(SignedDuration::ZERO);
    let began = ready.saturating_sub(latency).unwrap_or(ready);
    let parent = entry.trace.filter(|_| kind == "created");
    let Some(mut span) = traces.internal_span("start sandbox", parent.as_ref(), Some(began)) else {
        return;
    };
    set_key(&mut span, &entry.key);
    span.set("sandbox.id", entry.runtime_id.clone());
    span.set(
        "sandbox.start",
        if entry.status.warm { "claimed" } else { kind },
    );
    let named = entry.status.pod_name.as_deref();
    let pod = context.pods.get(&entry.key, &entry.uid, named);
    let stages = pod.map(|pod| stages(&pod, began, ready));
    record_stages(traces, &span, stages.unwrap_or_default());
    span.end_at(ready);
}

fn record_stages(traces: &Traces, start: &Span, stages: Vec<Stage>) {
    let parent = start.as_parent();
    for (name, start, end) in stages {
        if let Some(stage) = traces.internal_span(name, Some(&parent), Some(start)) {
            stage.end_at(end);
        }
    }
}

/// Stages of a start between these times, as far as the times of the Pod are known and later than its
/// begin: a warm Pod was scheduled long before. Times of Kubernetes have whole seconds.
fn stages(pod: &PodFacts, began: Timestamp, ready: Timestamp) -> Vec<Stage> {
    let running = pod.container.running_since();
    let ends = [
        ("schedule Pod", pod.scheduled_at),
        ("pull images and start container", running),
        ("wait for readiness", running.map(|_| ready)),
    ];
    let mut last = began;
    let mut stages = Vec::new();
    for (name, end) in ends {
        let Some(end) = end.map(|end| end.clamp(began, ready)) else {
            continue;
        };
        if end > last {
            stages.push((name, last, end));
            last = end;
        }
    }
    stages
}

fn set_key(span: &mut Span, key: &Key) {
    span.set("k8s.namespace.name", key.namespace.clone());
    span.set("sandbox.name", key.name.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Container, ContainerState};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn stages_of(scheduled: Option<i64>, running: Option<i64>) -> Vec<(&'static str, i64, i64)> {
        let mut pod = PodFacts {
            scheduled_at: scheduled.map(at),
            ..PodFacts::default()
        };
        if let Some(second) = running {
            pod.container = Container {
                state: ContainerState::Running {
                    started_at: Some(at(second)),
                },
                ..Container::default()
            };
        }
        let stages = stages(&pod, at(100), at(110)).into_iter();
        let seconds = stages.map(|(name, begin, end)| (name, begin.as_second(), end.as_second()));
        seconds.collect()
    }

    #[test]
    fn stages_follow_each_other_within_the_start() {
        let schedule = ("schedule Pod", 100, 102);
        let pull = ("pull images and start container", 102, 107);
        let wait = ("wait for readiness", 107, 110);
        assert_eq!(stages_of(Some(102), Some(107)), [schedule, pull, wait]);
        // A clock of a node that is ahead.
        let pull = ("pull images and start container", 102, 110);
        assert_eq!(stages_of(Some(102), Some(120)), [schedule, pull]);
        assert_eq!(stages_of(Some(102), None), [schedule]);
    }

    #[test]
    fn warm_pod_has_only_the_wait_for_readiness() {
        let wait = ("wait for readiness", 100, 110);
        assert_eq!(stages_of(Some(7), Some(9)), [wait]);
    }
}
