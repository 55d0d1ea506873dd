//! Controller and gateway against a real cluster, whose kubeconfig is in `KUBECONFIG` and whose state in
//! `CLUSTER_DIR`. `hack/test-cluster` starts one, loads the images and runs this.
//!
//! The operator runs once for all tests, and each test has a namespace of its own: they run side by side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod children;
mod command;
mod failures;
mod first_session;
mod gitops;
mod images;
mod installation;
mod isolation;
mod kubectl;
mod machine;
mod node;
mod plugins;
mod recovery;
mod scene;
mod schema;
mod second_node;
mod session;
mod storage;
mod v0_command;
