//! Everything that speaks to the Kubernetes API: the client and its time limits, watches, creation
//! of owned objects, leader election, the root key, what all of these say about the health of the
//! process, and the queue that paces reconciliation.
//!
//! Nothing here knows what a Sandbox means; that is the business of the controller.

pub mod apply;
pub mod backoff;
pub mod client;
#[cfg(test)]
pub(crate) mod fake;
pub mod health;
pub mod leader;
pub mod queue;
pub mod root_key;
pub mod slim;
pub mod watch;
pub mod wire;
pub mod words;
