//! Access to the Kubernetes API: client, watches, creation of owned objects, leader election, root
//! key, health, and the work queue.
//!
//! Nothing here depends on the meaning of a Sandbox; that is the controller's part.

pub mod api_messages;
pub mod backoff;
pub mod client;
pub mod error_text;
pub mod health;
pub mod leader;
pub mod middleware;
pub mod owned_objects;
pub mod root_key;
pub mod slim;
pub mod watch;
pub mod work_queue;
