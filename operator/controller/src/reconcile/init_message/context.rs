//! Input and errors of the initialization.

use crds::contract::token;

use crate::config::{ControllerConfig, Deadlines};
use shared::index::Entry;
use shared::keys::{Keys, SealError};

/// Longest initialization in bytes of JSON that fits a token of `MAX_TOKEN_BYTES`: base64 adds a
/// third twice, keys and signature some hundred bytes.
pub(super) const MAX_INIT_BYTES: usize = (token::MAX_TOKEN_BYTES - 2048) / 16 * 9;

/// Fault of the spec that keeps a sandbox from being initialized.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("the sandbox has no command")]
    NoCommand,
    #[error("spec.sealedEnv: {0}")]
    Sealed(#[from] SealError),
    #[error("spec.sealedEnv: the variable {0} exceeds the 128 KiB that Linux allows")]
    Variable(String),
    #[error(
        "spec.command and spec.sealedEnv: {0} bytes together exceed the limit of {MAX_INIT_BYTES}"
    )]
    TooLarge(usize),
    #[error("spec.command: cannot serialize it as JSON")]
    Encode(#[from] serde_json::Error),
}

/// Input of the initialization of one sandbox.
#[derive(Debug, Clone, Copy)]
pub struct InitContext<'a> {
    /// The object, its spec completed from the pool.
    pub entry: &'a Entry,
    pub config: &'a ControllerConfig,
    pub keys: &'a Keys,
    pub url: &'a str,
    pub deadlines: Deadlines,
    /// Number of the session key of the Pod; the spec may be newer.
    pub key_rotation: u32,
}
