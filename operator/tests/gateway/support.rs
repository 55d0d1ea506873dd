//! Fixtures of the gateway tests: a gateway on a fake Kubernetes API, and that gateway on a socket
//! with a sandbox behind it.

pub(crate) mod build_client;
pub(crate) mod event_client;
pub(crate) mod fake_registry;
pub(crate) mod gateway_fixture;
pub(crate) mod layer_pod;
pub(crate) mod mcp_client;
pub(crate) mod snapshot_client;
pub(crate) mod socket_fixture;
