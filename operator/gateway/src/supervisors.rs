//! Supervisors of sandboxes, as image builds see them.

use std::fmt::Debug;

use crds::contract::persistence::LayerRequest;
use futures::future::BoxFuture;
use http::Response;
use hyper::body::Incoming;
use shared::index::Entry;

/// Way to the supervisors of running sandboxes.
pub(crate) trait Supervisors: Debug + Send + Sync {
    /// Asks for the changed files of a snapshot on the volume of a sandbox. The response may have any
    /// status.
    fn layer<'a>(
        &'a self,
        entry: &'a Entry,
        request: LayerRequest,
    ) -> BoxFuture<'a, Result<Response<Incoming>, SupervisorError>>;
}

/// A supervisor did not respond.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SupervisorError(pub(crate) String);
