//! Controller of `Sandbox`es and `SandboxPool`s. Watches feed indexes and a work queue of keys. A
//! bounded number of reconciles runs at once, each with a time limit.

pub mod config;
pub mod facts;
pub mod probes;
pub mod reconcile;

mod admission_search;
mod cluster_probes;
mod context;
mod control_loop;
mod events;
mod image_builds;
mod injection;
mod log_tail;
mod pod_features;
mod pod_index;
mod pod_meter;
mod pools;
mod quota;
mod rejected_persistence;
mod sandbox_memory;
mod snapshots;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use shared::traffic::Gateways;

pub use builder::RegistryAccess;
pub use cluster_probes::PROBE_CONFIG_MAP;
pub use config::{
    BUILDER_IMAGE, BuildArgs, BuildLimits, BuildSteps, BuilderConfig, BuilderIsolation,
    ClassPolicy, ConfigMapMount, ControllerConfig, Deadlines, DefaultLevel, Defaults, Injection,
    PersistenceArgs, PersistenceSettings, PodArgs, PodSettings, RootPersistence, UserNamespaces,
};
pub use control_loop::{ControllerError, run};
pub use pod_features::PodFeatures;
pub use probes::supervisor_client::{
    HttpSupervisors, SupervisorAddress, SupervisorError, Supervisors,
};
pub use rejected_persistence::RejectedPersistence;

/// Clients of supervisors and gateways.
#[derive(Debug, Clone)]
pub struct PeerClients {
    pub supervisors: Arc<dyn Supervisors>,
    pub gateways: Arc<dyn Gateways>,
}
