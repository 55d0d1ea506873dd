//! The span of a request. Names and attributes have no paths, queries, headers or bodies: those may
//! hold secrets and personal data, and names must be few.

use axum::body::Body;
use axum::extract::MatchedPath;
use http::{Method, Request, StatusCode};
use shared::traces::{Span, TraceParent, Traces};

use crate::proxy::Target;

/// Longest name of a port in an attribute; the client chooses it.
const MAX_PORT_CHARS: usize = 64;

/// Starts the span of a request. `route` is that of a path outside of the API's router. `None` if the
/// span is not sampled.
pub(super) fn start(
    traces: &Traces,
    request: &Request<Body>,
    target: Option<&Target>,
    route: Option<&'static str>,
    parent: Option<TraceParent>,
) -> Option<Span> {
    let method = known_method(request.method());
    let mut span = match target {
        Some(Target::Sandbox(_)) => {
            let name = format!("{} sandbox", method.unwrap_or("HTTP"));
            traces.server_span(name, parent.as_ref())
        }
        _ => traces.server_span(method.unwrap_or("HTTP"), parent.as_ref()),
    }?;
    span.set("http.request.method", method.unwrap_or("_OTHER"));
    if let Some(Target::Sandbox(route)) = target {
        let port: String = route.port.chars().take(MAX_PORT_CHARS).collect();
        span.set("sandbox.id", route.id.clone());
        span.set("sandbox.port", port);
    }
    if let Some(route) = route {
        set_route(&mut span, request.method(), route);
    }
    Some(span)
}

/// Adds the endpoint of the API that answered.
pub(super) fn set_endpoint(span: &mut Span, method: &Method, endpoint: &MatchedPath) {
    set_route(span, method, endpoint.as_str());
}

/// Adds the end of a request.
pub(super) fn finish(span: &mut Span, status: Option<StatusCode>, outcome: &'static str) {
    if let Some(status) = status {
        span.set("http.response.status_code", i64::from(status.as_u16()));
    }
    span.set("sandbox.outcome", outcome);
    let is_failed = status.is_some_and(|status| status.is_server_error());
    if is_failed || outcome == "broken-off" {
        span.fail(outcome);
    }
}

fn set_route(span: &mut Span, method: &Method, route: &str) {
    let method = known_method(method).unwrap_or("HTTP");
    span.rename(format!("{method} {route}"));
    span.set("http.route", route.to_owned());
}

/// Name of a method that the semantic conventions know. Clients can invent others.
fn known_method(method: &Method) -> Option<&'static str> {
    Some(match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_methods_have_no_name() {
        assert_eq!(known_method(&Method::PATCH), Some("PATCH"));
        let invented = Method::from_bytes(b"PERSONAL").unwrap();
        assert_eq!(known_method(&invented), None);
    }
}
