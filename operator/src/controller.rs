//! The controller makes reality match every Sandbox: observe, plan, build, apply, report, each a
//! module, driven by `reconcile`. Watches feed indexes and a queue of keys; a fixed number of
//! passes runs at once, each with a time limit.

pub mod build;
pub mod config;
pub mod facts;
pub mod init;
pub mod plan;
pub mod supervisor;

mod admission;
mod apply;
mod category;
mod create;
mod events;
mod idleness;
mod last_words;
mod observe;
mod pace;
mod pods;
mod pools;
mod readiness;
mod reconcile;
mod refusals;
mod report;
mod run;
mod starts;
mod suspension;
mod work;

use std::sync::Arc;

use crate::traffic::Gateways;

pub use config::{
    ClassPolicy, ConfigMapMount, ControllerConfig, Deadlines, Defaults, Injection, PodSettings,
};
pub use run::{ControllerError, run};
pub use supervisor::{HttpSupervisors, SupervisorError, Supervisors};

/// Whom the controller asks about sandboxes.
#[derive(Debug, Clone)]
pub struct Peers {
    pub supervisors: Arc<dyn Supervisors>,
    pub gateways: Arc<dyn Gateways>,
}
