//! A real API server without nodes that is changed under the operator: it has forgotten what was last seen
//! (410), or its resources are upgraded. Its kubeconfig is in `KUBECONFIG` and its state in `CLUSTER_DIR`;
//! it is for nothing else, and the tests take turns. `hack/test-cluster` starts it and runs this.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod api_server;
mod controller;
mod crd_upgrade;
mod fixture;
mod older_crds;
mod relist;
