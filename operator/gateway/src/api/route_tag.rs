//! Names the endpoint that answered, for the span of the request.

use axum::body::Body;
use axum::extract::MatchedPath;
use axum::middleware::Next;
use http::{Request, Response};

/// Template of the path of the endpoint, an extension of responses while spans are recorded.
#[derive(Debug, Clone)]
pub(crate) struct RouteTag(pub(crate) MatchedPath);

pub(super) async fn add_route(request: Request<Body>, next: Next) -> Response<Body> {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(RouteTag(route));
    }
    response
}
