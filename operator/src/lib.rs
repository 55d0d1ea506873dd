//! Sandbox Operator as one program: the [`controller`] reconciles Sandboxes, the [`gateway`] serves
//! the runtime API and proxies to sandboxes. The modules of [`shared`] are re-exported.

pub mod args;

pub use controller;
pub use gateway;
pub use shared::{
    admin_server, clock, diagnostics, image_builds, image_reference, index, keys, kubernetes,
    logging, metrics, quantity, runtime_class, tenants, traces, traffic, urls,
};
