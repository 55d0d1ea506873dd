//! Clients of the embedded API that say who they are, unless the request already does, so that faults
//! and counts can tell them apart.

use http::header::{HeaderValue, USER_AGENT};
use kube::Client;
use tower::ServiceExt as _;

use crate::fault_injection::TestApi;

/// User agent of what meets no faults.
pub(super) const OBSERVER: &str = "observer";

/// A client with this user agent.
pub(super) fn of(api: &TestApi, agent: &'static str) -> Client {
    let service = api
        .clone()
        .map_request(move |mut request: http::Request<kube::client::Body>| {
            let agent = HeaderValue::from_static(agent);
            request.headers_mut().entry(USER_AGENT).or_insert(agent);
            request
        });
    Client::new(service, "default")
}
