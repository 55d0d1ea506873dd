//! Requests to sandboxes and gateways: readiness, idle time, client of the supervisors.

pub(crate) mod idle_checker;
pub(crate) mod readiness_prober;
pub(crate) mod state_saver;
pub mod supervisor_client;
