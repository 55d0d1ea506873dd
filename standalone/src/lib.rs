//! Sandbox Operator without a cluster: an embedded Kubernetes-style [`api`], a [`node`] that runs
//! Pods as local processes, and the same controller and gateway as on a cluster, in one process.

pub mod api;
pub mod app;
pub mod args;
mod banner;
pub mod images_command;
pub mod network_policy;
pub mod node;
mod state_dir;
