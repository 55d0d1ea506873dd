//! The trace of a request (W3C Trace Context, level 1): the client's, passed on unchanged, or a new
//! one. Its id is in log lines, so that those of all components can be correlated. If the gateway
//! records a span, the request goes on with that span as its parent.

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use shared::traces::{Span, TRACEPARENT, TraceParent, Traces};

use super::request_span;
use crate::proxy::Target;

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Trace of a request.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    /// 32 hexadecimal digits.
    pub(crate) id: String,
    /// Span of the request, if it is recorded.
    pub(super) span: Option<Span>,
}

impl RequestTrace {
    /// Reads the client's trace or starts one, and starts a span if this process records spans.
    /// `route` is that of a path outside of the API's router.
    pub(crate) fn begin(
        traces: Option<&Traces>,
        request: &mut Request<Body>,
        target: Option<&Target>,
        route: Option<&'static str>,
    ) -> Self {
        let parent = TraceParent::from_headers(request.headers());
        let span =
            traces.and_then(|traces| request_span::start(traces, request, target, route, parent));
        let headers = request.headers_mut();
        if parent.is_none() {
            headers.remove(TRACEPARENT);
            // It belongs to the invalid `traceparent`.
            headers.remove(TRACESTATE);
        }
        let id = match (&span, parent) {
            (Some(span), _) => insert(headers, &span.as_parent()),
            (None, Some(parent)) => parent.trace_id(),
            (None, None) => start(headers),
        };
        Self { id, span }
    }
}

/// Replaces the header and returns the id of the trace.
fn insert(headers: &mut HeaderMap, parent: &TraceParent) -> String {
    if let Ok(line) = HeaderValue::try_from(parent.to_string()) {
        headers.insert(TRACEPARENT, line);
    }
    parent.trace_id()
}

/// Starts a trace that is not sampled. Ids must be unique, not secret, so a fast generator is enough.
fn start(headers: &mut HeaderMap) -> String {
    let id = format!("{:032x}", fastrand::u128(1..));
    let line = format!("00-{id}-{:016x}-00", fastrand::u64(1..));
    if let Ok(line) = HeaderValue::try_from(line) {
        headers.insert(TRACEPARENT, line);
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn request(lines: &[&str]) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        let headers = request.headers_mut();
        for line in lines {
            headers.append(TRACEPARENT, line.parse().unwrap());
        }
        headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
        request
    }

    #[test]
    fn passes_valid_trace_on() {
        for line in [
            format!("00-{ID}-{SPAN}-01"),
            format!("cc-{ID}-{SPAN}-01-what-will-be"),
        ] {
            let mut request = request(&[&line]);
            let before = request.headers().clone();
            assert_eq!(RequestTrace::begin(None, &mut request, None, None).id, ID);
            assert_eq!(*request.headers(), before);
        }
    }

    #[test]
    fn replaces_invalid_trace() {
        let good = format!("00-{ID}-{SPAN}-01");
        for lines in [&[][..], &[&*good, &*good], &["00-1-2-3"]] {
            let mut request = request(lines);
            let id = RequestTrace::begin(None, &mut request, None, None).id;
            assert_ne!(id, ID, "{lines:?}");
            let parent = TraceParent::from_headers(request.headers()).unwrap();
            assert_eq!(
                (parent.trace_id(), parent.is_sampled()),
                (id.clone(), false)
            );
            assert!(!request.headers().contains_key(TRACESTATE));
            let mut again = Request::new(Body::empty());
            assert_ne!(RequestTrace::begin(None, &mut again, None, None).id, id);
        }
    }
}
