//! What the parts of Sandbox Operator agree on, and nothing that does I/O: the custom resources,
//! the names of everything derived from them, and the [`contract`] between operator and executor.
//!
//! Without the feature `kube` only [`contract`] is compiled, so that the executor stays free of
//! Kubernetes.

pub mod contract;

#[cfg(feature = "kube")]
pub mod amount;
#[cfg(feature = "kube")]
pub mod conditions;
#[cfg(feature = "kube")]
pub mod duration;
#[cfg(feature = "kube")]
pub mod names;
#[cfg(feature = "kube")]
#[allow(
    unreachable_pub,
    reason = "the derive declares the public types once more, in private"
)]
pub mod pool;
#[cfg(feature = "kube")]
#[allow(
    unreachable_pub,
    reason = "the derive declares the public types once more, in private"
)]
pub mod sandbox;
#[cfg(feature = "kube")]
pub mod schema;

#[cfg(feature = "kube")]
pub use pool::SandboxPool;
#[cfg(feature = "kube")]
pub use sandbox::Sandbox;
