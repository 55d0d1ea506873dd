//! Calls to the supervisors of sandboxes. The address of each connection is proven, as for requests
//! of clients.

use axum::body::Body;
use crds::contract::control::{ControlMessage, Grant};
use crds::contract::persistence::LayerRequest;
use crds::contract::{CONTROL_PORT, endpoint};
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use hyper::body::Incoming;
use jiff::Timestamp;

use super::body::RetryableBody;
use super::{Proxy, ProxyError};
use crate::supervisors::{SupervisorError, Supervisors};
use shared::index::Entry;

impl Supervisors for Proxy {
    fn layer<'a>(
        &'a self,
        entry: &'a Entry,
        request: LayerRequest,
    ) -> BoxFuture<'a, Result<Response<Incoming>, SupervisorError>> {
        Box::pin(async {
            let response = self.ask_for_layer(entry, request).await;
            response.map_err(|error| SupervisorError(error.to_string()))
        })
    }
}

impl Proxy {
    async fn ask_for_layer(
        &self,
        entry: &Entry,
        request: LayerRequest,
    ) -> Result<Response<Incoming>, ProxyError> {
        let pod = entry
            .status
            .pod_uid
            .as_deref()
            .ok_or(ProxyError::NotReady)?;
        if !entry.status.proves_address {
            // The key of the snapshot is in the request.
            return Err(ProxyError::Unreachable);
        }
        let keys = self.sandboxes.keys.of(entry.created_at);
        let now = Timestamp::now().as_second();
        let token = ControlMessage::new(pod, now, Grant::Layer(request)).sign(keys.signer());
        let token = token.map_err(|_| ProxyError::BadRequest("the request is malformed"))?;
        let request =
            Request::get(endpoint::LAYER).header(AUTHORIZATION, format!("Bearer {token}"));
        let request = request.body(());
        let request = request.map_err(|_| ProxyError::BadRequest("the request is malformed"))?;
        let (parts, ()) = request.into_parts();
        let ip = self.pod_address(entry)?;
        let upstream = self
            .upstreams
            .upstream(&self.sandboxes, entry, ip, CONTROL_PORT)?;
        let body = RetryableBody::new(Body::empty());
        self.upstreams.send(&upstream, &parts, body.attempt()).await
    }
}
