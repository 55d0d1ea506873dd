//! A real API server that has forgotten what the operator last saw (410), whose kubeconfig is in
//! `KUBECONFIG` and whose state in `CLUSTER_DIR`. It is ended and started here, so it is for nothing else;
//! `hack/test-cluster` starts one without nodes and runs this.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod api_server;
mod controller;
mod relist;
