//! What the tests of API and proxy have in common: a fake Kubernetes API, a gateway on it, and that
//! gateway on a socket with a sandbox behind it.

#![allow(dead_code, reason = "every file of tests uses a part of it")]

pub(crate) mod fake_api;
pub(crate) mod stage;
pub(crate) mod world;
