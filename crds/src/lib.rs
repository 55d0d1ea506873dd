//! Custom resources, names of owned objects, and the [`contract`] between operator and executor.
//! Nothing here does I/O. Without the feature `kube` only [`contract`] and [`shell_words`] are
//! compiled, so that the executor does not depend on Kubernetes.

pub mod contract;
pub mod shell_words;

#[cfg(feature = "kube")]
pub mod conditions;
#[cfg(feature = "kube")]
pub mod duration;
#[cfg(feature = "kube")]
#[allow(
    unreachable_pub,
    reason = "the derive repeats the public types in a private module"
)]
pub mod image_build;
#[cfg(feature = "kube")]
pub mod int_or_string;
#[cfg(feature = "kube")]
pub mod names;
#[cfg(feature = "kube")]
#[allow(
    unreachable_pub,
    reason = "the derive repeats the public types in a private module"
)]
pub mod pool;
#[cfg(feature = "kube")]
#[allow(
    unreachable_pub,
    reason = "the derive repeats the public types in a private module"
)]
pub mod sandbox;
#[cfg(feature = "kube")]
pub mod schema;
#[cfg(feature = "kube")]
#[allow(
    unreachable_pub,
    reason = "the derive repeats the public types in a private module"
)]
pub mod snapshot;

#[cfg(feature = "kube")]
pub use image_build::ImageBuild;
#[cfg(feature = "kube")]
pub use pool::SandboxPool;
#[cfg(feature = "kube")]
pub use sandbox::Sandbox;
#[cfg(feature = "kube")]
pub use snapshot::SandboxSnapshot;
