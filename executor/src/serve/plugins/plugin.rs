//! The trait that every plugin implements.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde::{Serialize, Serializer};

use super::name::PluginName;

/// Future of a plugin method. A trait with `async fn` cannot be a trait object.
pub(in crate::serve) type PluginFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Optional part of the server beside shell, files and editor.
pub(in crate::serve) trait Plugin: fmt::Debug + Send + Sync {
    fn name(&self) -> PluginName;

    /// Starts the plugin. Called once, while the server already accepts requests; a request that
    /// needs the plugin earlier waits. Errors are reported by `health`; the server keeps running.
    fn start(&self) -> PluginFuture<'_, ()>;

    /// Ends the processes of the plugin. Requests that wait for it get an error.
    fn stop(&self) -> PluginFuture<'_, ()>;

    fn health(&self) -> Health;

    /// Environment variables for the programs of other plugins; empty until it has started.
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        Vec::new()
    }
}

/// Health of a plugin, as `plugins` of `GET /server_info` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::serve) enum Health {
    #[default]
    Starting,
    Ready,
    Failed(String),
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Starting => serializer.serialize_str("starting"),
            Self::Ready => serializer.serialize_str("ready"),
            Self::Failed(reason) => serializer.collect_str(&format_args!("failed: {reason}")),
        }
    }
}
