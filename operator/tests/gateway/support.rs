//! Fixtures of the gateway tests: a fake Kubernetes API, a gateway on it, and that gateway on a
//! socket with a sandbox behind it.

pub(crate) mod fake_api;
pub(crate) mod gateway_fixture;
pub(crate) mod socket_fixture;
