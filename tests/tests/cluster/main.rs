//! Controller and gateway against a real cluster, whose kubeconfig is in `KUBECONFIG`.
//! `hack/test-cluster` starts one, loads the images and runs this.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod children;
mod first_session;
mod installation;
