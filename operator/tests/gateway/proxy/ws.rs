//! Web sockets through the proxy, with a client and a server that follow the protocol, and with
//! frames of every kind byte by byte.

use futures::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async, client_async};

use crate::support::socket_fixture::{SocketFixture, assert_lines};

const PROTOCOL: &str = "sec-websocket-protocol";

type Socket = WebSocketStream<TcpStream>;

/// Opens a WebSocket through the gateway and returns both ends.
#[allow(
    clippy::result_large_err,
    reason = "the signature is that of the library"
)]
async fn connect(fixture: &SocketFixture) -> (Socket, Socket) {
    let url = format!("ws://{}/sockets?x=1", fixture.host());
    let mut request = url.into_client_request().unwrap();
    let protocol = "chat.v1".parse().unwrap();
    request.headers_mut().insert(PROTOCOL, protocol);
    let dial = async {
        let stream = TcpStream::connect(fixture.address).await.unwrap();
        client_async(request, stream).await.unwrap()
    };
    let serve = async {
        let (stream, _) = fixture.upstream.accept().await.unwrap();
        accept_hdr_async(stream, |request: &Request, mut response: Response| {
            assert_eq!(request.uri(), "/sockets?x=1");
            let requested = request.headers()[PROTOCOL].clone();
            response.headers_mut().insert(PROTOCOL, requested);
            Ok(response)
        })
        .await
        .unwrap()
    };
    let ((near, answer), far) = tokio::join!(dial, serve);
    assert_eq!(answer.headers()[PROTOCOL], "chat.v1");
    (near, far)
}

#[tokio::test]
async fn frames_of_every_kind_and_extensions_pass_unchanged() {
    let fixture = SocketFixture::new().await;
    let (mut client, mut sandbox, head) = fixture
        .open(
            "GET /ws HTTP/1.1\nHost: HOST\nConnection: Upgrade\nUpgrade: websocket\n\
             Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\
             Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\n\n",
        )
        .await;
    let offer = "sec-websocket-extensions: permessage-deflate; client_max_window_bits";
    assert_lines("request", &head, offer);
    sandbox
        .send(
            "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\n\
             Sec-WebSocket-Extensions: permessage-deflate\n\n",
        )
        .await;
    let consent = "sec-websocket-extensions: permessage-deflate";
    assert_lines("response", &client.head().await, consent);
    // Compressed, with an unknown opcode, a ping between two fragments, a pong, a close.
    let frames = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xf3\x00\x8b\x02\x00\x01\
        \x01\x03Hel\x89\x01p\x80\x02lo\x8a\x00\x88\x02\x03\xe8";
    client.send_raw(frames).await;
    assert_eq!(sandbox.bytes(frames.len()).await, frames);
    sandbox.send_raw(frames).await;
    assert_eq!(client.bytes(frames.len()).await, frames);
}

#[tokio::test]
async fn websockets_of_one_sandbox_do_not_block_each_other() {
    let fixture = SocketFixture::new().await;
    let (mut stuck, _unread) = connect(&fixture).await;
    let mut other = connect(&fixture).await;
    // The other end of the first one does not read.
    let chunk = Message::binary(vec![0; 1 << 20]);
    let fill = async {
        loop {
            stuck.send(chunk.clone()).await.unwrap();
        }
    };
    let talk = async {
        for n in 0..100 {
            let message = Message::text(format!("{n}"));
            other.0.send(message.clone()).await.unwrap();
            assert_eq!(other.1.next().await.unwrap().unwrap(), message);
        }
    };
    tokio::select! {
        () = fill => {}
        () = talk => {}
    }
}
