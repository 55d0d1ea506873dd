//! Clients of the embedded API that say who they are, unless the request already does, so that faults
//! and counts can tell them apart.

use futures::FutureExt as _;
use http::header::{HeaderValue, USER_AGENT};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};
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

/// A client whose new Sandboxes get this number for their port `runtime`, as a mutating web hook would
/// give it to them.
pub(super) fn with_runtime_port(api: &TestApi, port: u16) -> Client {
    let service = api.clone().map_request(move |request| {
        let (parts, body): (http::request::Parts, kube::client::Body) =
            Request::into_parts(request);
        let created = parts.method == Method::POST && parts.uri.path().ends_with("/sandboxes");
        let body = if created { with_port(body, port) } else { body };
        Request::from_parts(parts, body)
    });
    Client::new(service, "default")
}

fn with_port(body: kube::client::Body, port: u16) -> kube::client::Body {
    // It is in memory as a whole.
    let bytes = body.collect().now_or_never().expect("a whole body");
    let bytes = bytes.expect("a body").to_bytes();
    let mut sandbox: Value = serde_json::from_slice(&bytes).expect("a Sandbox");
    sandbox["spec"]["ports"] = json!([{"name": "runtime", "port": port}]);
    sandbox.to_string().into_bytes().into()
}
