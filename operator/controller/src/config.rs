//! Configuration of the controller: defaults, limits and settings of one installation, with the
//! flags and environment variables that set them.

mod deadlines;
mod pod_args;
mod pods;
mod types;

pub use deadlines::Deadlines;
pub use pod_args::PodArgs;
pub use pods::{ConfigMapMount, Injection, PodSettings};
pub use types::{ClassPolicy, ControllerConfig, Defaults};
