//! The charts: their values and documents anywhere, and what they install on a real cluster, whose
//! kubeconfig is in `KUBECONFIG`. `hack/test-cluster` starts one with an audit log, loads the images
//! and runs these.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod admin;
mod audit;
mod builds;
mod dns;
mod doctor;
mod generated_files;
mod idle;
mod images;
mod install;
mod isolation;
mod kubeconfig;
mod limits;
mod monitoring;
mod packages;
mod rbac;
mod release;
mod render;
mod upgrade;
mod values;
