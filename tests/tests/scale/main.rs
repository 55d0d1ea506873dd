//! Thousands of Sandboxes on a real API server with fake nodes, whose kubeconfig is in `KUBECONFIG` and
//! whose audit log says what was written. `hack/test-cluster` starts one and runs these.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod operator;
mod pool_crashes;
mod thousands;
