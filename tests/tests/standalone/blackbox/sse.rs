//! A client of event streams.

use futures::Stream;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tests::clients::http_client::LocalhostResolver;

/// Opens a stream of the sandbox with this session key; what comes, as it comes.
pub(super) async fn open(
    url: &str,
    key: &str,
    http2: bool,
) -> impl Stream<Item = Result<Bytes, hyper::Error>> + Unpin + Send + use<> {
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .http2_only(http2)
        .build(HttpConnector::new_with_resolver(LocalhostResolver));
    let request = http::Request::get(url)
        .header("X-Session-API-Key", key)
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body().into_data_stream()
}
