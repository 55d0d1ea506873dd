//! Controller and gateway against a real cluster, whose kubeconfig is in `KUBECONFIG` and whose state in
//! `CLUSTER_DIR`. `hack/test-cluster` starts one, loads the images and runs this.
//!
//! The operator runs once for all tests, and each test has a namespace of its own: they run side by side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod beats;
mod browser;
mod changed_image;
mod crd_schema;
mod entrypoint_environment;
mod escapes;
mod failures;
mod full_builds;
mod gitops;
mod image_volume;
mod images;
mod installation;
mod isolation;
mod kubectl;
mod node_control;
mod node_failures;
mod node_leftovers;
mod operator_kills;
mod persistence;
mod persistence_crashes;
mod persistence_ladder;
mod plugins;
mod recovery;
mod second_node;
mod session;
mod snapshot_pool;
mod storage;
mod test_namespace;
mod user_namespaces;
mod v0_command;
mod warm_resume;
