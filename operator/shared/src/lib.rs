//! The modules that controller and gateway have in common: the [`index`] of Sandboxes, the [`keys`]
//! derived from one root key, [`tenants`] and their API keys, the [`urls`] of sandboxes, the client
//! side of the Kubernetes API, metrics and health.

pub mod admin_server;
pub mod clock;
pub mod diagnostics;
pub mod image_builds;
pub mod image_reference;
pub mod index;
pub mod keys;
pub mod kubernetes;
pub mod logging;
pub mod metrics;
pub mod quantity;
pub mod recent_map;
pub mod resources;
pub mod runtime_class;
pub mod tenants;
pub mod token_bucket;
pub mod traces;
pub mod traffic;
pub mod urls;
