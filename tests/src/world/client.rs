//! Clients of the embedded API that say who they are, unless the request already does, so that faults
//! and counts can tell them apart.

use http::header::{HeaderValue, USER_AGENT};
use kube::Client;
use standalone::api::EmbeddedApi;
use tower::ServiceExt as _;

/// User agent of what meets no faults.
pub(super) const OBSERVER: &str = "observer";

/// A client with this user agent.
pub(super) fn of(api: &EmbeddedApi, agent: &'static str) -> Client {
    let service =
        api.service()
            .map_request(move |mut request: http::Request<kube::client::Body>| {
                let agent = HeaderValue::from_static(agent);
                request.headers_mut().entry(USER_AGENT).or_insert(agent);
                request
            });
    Client::new(service, "default")
}
