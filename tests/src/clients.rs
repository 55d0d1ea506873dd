//! The clients of the runtime API, written again from its specification (section 3) with the strictness
//! of the Python originals: which keys they index, which types they take, what they raise, and when
//! they give up. Only the pauses between polls are shorter.

pub mod admin;
pub mod exception;
pub mod http_client;
pub mod runtime_api;
pub mod sdk;
pub mod v0;
pub mod v1;

pub use admin::Admin;
pub use exception::ClientException;
pub use http_client::{HttpClient, JsonReply, Reply, text};
pub use runtime_api::RuntimeApi;
pub use sdk::Sdk;
pub use v0::{BuildConfig, V0, V0Config};
pub use v1::{Enterprise, SandboxStatus, V1App};

use std::time::Duration;

/// Pause between two polls, where the originals wait 2 to 15 seconds.
pub const POLL: Duration = Duration::from_millis(50);
