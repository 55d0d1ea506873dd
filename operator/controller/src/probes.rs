//! Requests to sandboxes and gateways: readiness, idle time, client of the supervisors.

pub(crate) mod idle_checker;
pub(crate) mod readiness_prober;
pub mod supervisor_client;
