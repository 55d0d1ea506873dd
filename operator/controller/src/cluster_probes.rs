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

pub use record_store::PROBE_CONFIG_MAP;
pub(crate) use record_store::ProbeRecords;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use keeper::KeptProbe;

/// Probes whose answers outlive the leader.
const KEPT: [KeptProbe; 4] = [
    root_overlays::PROBE,
    user_namespaces::PROBE,
    memory::IN_USER_NAMESPACE,
    memory::WITH_HOST_USERS,
];

/// Reads what the leaders before found out, and reports it. Without it, the first Pods of a new leader
/// would have less isolation, and would not go on with what Pods of the leader before have saved.
pub(crate) async fn recall(context: &Context) -> ProbeRecords {
    // The role permits no read otherwise.
    if !KEPT.iter().any(|probe| probe.is_asked_for_by(context)) {
        return ProbeRecords::default();
    }
    let known = record_store::read(context).await;
    for probe in KEPT {
        probe.recall(context, &known);
    }
    known
}

/// Runs the probes that the configuration asks for. Ends at shutdown, or before.
pub(crate) async fn run(context: &Context, known: &ProbeRecords, shutdown: &CancellationToken) {
    let kept = KEPT.map(|probe| Box::pin(probe.keep(context, known, shutdown)));
    tokio::join!(
        Box::pin(image_volumes::probe(context, shutdown)),
        futures::future::join_all(kept),
    );
}
