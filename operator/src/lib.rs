//! The two roles of Sandbox Operator: the [`controller`] makes Sandboxes real, the [`gateway`]
//! serves the remote runtime API and proxies to the sandboxes.
//!
//! Both stand on the same parts: the [`index`] of Sandboxes, the [`keys`] derived from one root
//! key, and the [`urls`] of sandboxes.

pub mod admin;
pub mod args;
pub mod clock;
pub mod controller;
pub mod gateway;
pub mod index;
pub mod keys;
pub mod kubernetes;
pub mod metrics;
pub mod runtime_class;
pub mod telemetry;
pub mod traffic;
pub mod urls;
pub mod vitals;
