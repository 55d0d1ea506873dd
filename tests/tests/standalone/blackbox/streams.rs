//! Clients of event streams and of web sockets.

use std::time::Duration;

use futures::{SinkExt as _, Stream, StreamExt as _};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::json;
use tests::clients::http_client::LocalhostResolver;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

pub(crate) type Socket = WebSocketStream<TcpStream>;

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

/// Opens a web socket of the fake agent-server at this URL; the first frame says who listens.
pub(crate) async fn listen(url: &str, key: &str) -> Socket {
    let url = url.replacen("http://", "ws://", 1);
    let port = url.rsplit_once(':').unwrap().1;
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await;
    let request = format!("{url}/sockets/events/1?resend_all=true");
    let (mut socket, _) = client_async(request, stream.unwrap()).await.unwrap();
    let auth = json!({"type": "auth", "session_api_key": key});
    socket.send(Message::text(auth.to_string())).await.unwrap();
    socket
}

/// The next message.
pub(crate) async fn next(socket: &mut Socket) -> Message {
    let message = timeout(Duration::from_secs(10), socket.next()).await;
    message.unwrap().unwrap().unwrap()
}

/// Sends a message, which has to come back.
pub(crate) async fn echoes(socket: &mut Socket, message: Message) {
    socket.send(message.clone()).await.unwrap();
    assert_eq!(next(socket).await, message);
}
