//! Result of a request before it is encoded.

use std::sync::Arc;

use axum::body::Body;
use serde_json::Value;

/// Result of a request before encoding.
#[derive(Debug)]
pub(crate) enum VerbResult {
    Object {
        object: Arc<Value>,
        created: bool,
        changed: bool,
        warnings: Vec<String>,
    },
    List {
        items: Vec<Arc<Value>>,
        revision: u64,
        /// Continue token of the next page.
        continue_token: Option<String>,
    },
    Status {
        status: Value,
        changed: bool,
    },
    /// Another type than the resource, such as a Scale.
    Plain(Value),
    Text(Body),
    Watch(Body),
}

impl VerbResult {
    /// An object without warnings that was not created.
    pub(crate) fn object(object: Arc<Value>, changed: bool) -> Self {
        Self::Object {
            object,
            created: false,
            changed,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn is_changed(&self) -> bool {
        matches!(
            self,
            Self::Object { changed: true, .. } | Self::Status { changed: true, .. }
        )
    }
}
