//! Probes of the cluster. Each runs one small Pod to find out whether Pods of a kind work: versions
//! do not tell, and reading nodes takes cluster-wide rights. Nothing waits for a probe.
//!
//! A further probe is a module with a [`KeptProbe`].

mod image_volumes;
mod keeper;
mod memory;
mod probe_pod;
mod record;
mod record_store;
mod root_overlays;
mod runner;
mod user_namespaces;
mod verdict;

use std::collections::BTreeSet;

pub use record_store::PROBE_CONFIG_MAP;
pub(crate) use record_store::ProbeRecords;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::ControllerConfig;
use crate::context::Context;
use keeper::KeptProbe;
use shared::runtime_class::real_name;

/// Probes whose answers outlive the leader.
const KEPT: [KeptProbe; 4] = [
    root_overlays::PROBE,
    user_namespaces::PROBE,
    memory::IN_USER_NAMESPACE,
    memory::WITH_HOST_USERS,
];

/// Pods that run at a time.
const MAX_CONCURRENT_PROBES: usize = 4;
/// Runtime classes that probes run for, with the default one.
const MAX_CLASSES: usize = 9;

/// Reads what the leaders before found out, and learns from it. Without it, the first Pods of a new leader
/// would have less isolation, and would not go on with what Pods of the leader before have saved.
pub(crate) async fn recall(context: &Context) -> ProbeRecords {
    // The role permits no read otherwise.
    if !KEPT.iter().any(|probe| probe.is_asked_for_by(context)) {
        return ProbeRecords::default();
    }
    let known = record_store::read(context).await;
    let asked_for = KEPT.iter().filter(|probe| probe.is_asked_for_by(context));
    asked_for.for_each(|probe| probe.recall(context, &known));
    known
}

/// Runs the probes that the configuration asks for. Ends at shutdown, or before.
pub(crate) async fn run(context: &Context, known: &ProbeRecords, shutdown: &CancellationToken) {
    if let Some(rest @ [_, ..]) = classes(&context.config).get(MAX_CLASSES..) {
        tracing::warn!(classes = ?rest, "no probe runs for these runtime classes: there are too many");
    }
    let permits = Semaphore::new(MAX_CONCURRENT_PROBES);
    let keep = |(class, probe): (_, KeptProbe)| {
        Box::pin(probe.keep(context, class, known, &permits, shutdown))
    };
    let kept = probes_of_classes(context).map(keep);
    tokio::join!(
        Box::pin(image_volumes::probe(context, shutdown)),
        futures::future::join_all(kept),
    );
}

/// Every probe for every runtime class, the default one first.
fn probes_of_classes(context: &Context) -> impl Iterator<Item = (Option<&str>, KeptProbe)> {
    let classes = classes(&context.config).into_iter().take(MAX_CLASSES);
    classes.flat_map(|class| KEPT.map(|probe| (class, probe)))
}

/// The default runtime class, and the others that the cluster has by its configuration.
fn classes(config: &ControllerConfig) -> Vec<Option<&str>> {
    let gvisor = config.classes.gvisor.as_deref();
    let installed = config.classes.installed.iter();
    let installed = installed.map(|class| Some(real_name(class, gvisor)));
    let mut classes = vec![config.defaults.runtime_class_name.as_deref()];
    classes.extend(installed);
    let mut known = BTreeSet::new();
    classes.retain(|class| known.insert(*class));
    classes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::config;

    #[test]
    fn each_class_is_probed_once_and_the_default_one_first() {
        let mut config = config();
        assert_eq!(classes(&config), [None]);
        config.classes.gvisor = Some("runsc".into());
        config.defaults.runtime_class_name = Some("kata".into());
        config.classes.installed = ["gvisor", "kata", "runsc", "sysbox"].map(Into::into).into();
        let expected = ["kata", "runsc", "sysbox-runc"].map(Some);
        assert_eq!(classes(&config), expected);
    }
}
