//! Web sockets through the proxy, with a client and a server that follow the protocol: every kind of
//! frame and close arrives unchanged.

use futures::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
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

/// Echoes messages until the end; returns the close frame.
fn echo(mut far: Socket) -> JoinHandle<Option<CloseFrame>> {
    tokio::spawn(async move {
        while let Some(Ok(message)) = far.next().await {
            match message {
                Message::Text(_) | Message::Binary(_) => far.send(message).await.unwrap(),
                Message::Close(frame) => {
                    // Completes the closing handshake.
                    while far.next().await.is_some() {}
                    return frame;
                }
                _ => {}
            }
        }
        None
    })
}

#[tokio::test]
async fn messages_of_every_size_are_echoed() {
    let fixture = SocketFixture::new().await;
    let (mut near, far) = connect(&fixture).await;
    let echoed = echo(far);
    for size in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 1 << 20, 16 << 20] {
        let text: String = "aé€😀".chars().cycle().take(size / 4).collect();
        let bytes: Vec<u8> = (0..=255).cycle().take(size).collect();
        for message in [Message::text(text), Message::binary(bytes)] {
            near.send(message.clone()).await.unwrap();
            let back = near.next().await.unwrap().unwrap();
            assert!(back == message, "size {size}");
        }
    }
    near.close(None).await.unwrap();
    echoed.await.unwrap();
}

/// Reads the next message, which must be this one.
async fn assert_next(socket: &mut Socket, expected: &Message) {
    assert_eq!(socket.next().await.unwrap().unwrap(), *expected);
}

#[tokio::test]
async fn fragments_and_control_frames_between_them_pass() {
    let fixture = SocketFixture::new().await;
    let (mut near, mut far) = connect(&fixture).await;
    let part = |text: &'static str, code, last| {
        Message::Frame(Frame::message(text, OpCode::Data(code), last))
    };
    let ping = Message::Ping("p".into());
    for frame in [
        part("Hel", Data::Text, false),
        ping.clone(),
        part("", Data::Continue, false),
        part("lo", Data::Continue, true),
    ] {
        near.send(frame).await.unwrap();
    }
    // The ping arrives before the message that it interrupts.
    assert_next(&mut far, &ping).await;
    assert_next(&mut far, &Message::text("Hello")).await;
    far.flush().await.unwrap();
    assert_next(&mut near, &Message::Pong("p".into())).await;
}

#[tokio::test]
async fn pings_and_pongs_pass_both_ways() {
    let fixture = SocketFixture::new().await;
    let (mut near, mut far) = connect(&fixture).await;
    for payload in ["", "ping", &"x".repeat(125)] {
        let payload = payload.as_bytes().to_vec();
        let ping = Message::Ping(payload.clone().into());
        let answer = Message::Pong(payload.into());
        for _ in 0..2 {
            near.send(ping.clone()).await.unwrap();
            assert_next(&mut far, &ping).await;
            far.flush().await.unwrap();
            assert_next(&mut near, &answer).await;
            // An unsolicited pong.
            near.send(answer.clone()).await.unwrap();
            assert_next(&mut far, &answer).await;
            // The same in the other direction.
            std::mem::swap(&mut near, &mut far);
        }
    }
}

#[tokio::test]
async fn every_close_code_passes_both_ways() {
    let fixture = SocketFixture::new().await;
    let codes = [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4999,
    ];
    for code in codes {
        for from_client in [true, false] {
            let (mut one, mut other) = connect(&fixture).await;
            if !from_client {
                std::mem::swap(&mut one, &mut other);
            }
            let frame = CloseFrame {
                code: CloseCode::from(code),
                reason: "enough".into(),
            };
            one.close(Some(frame.clone())).await.unwrap();
            assert_next(&mut other, &Message::Close(Some(frame.clone()))).await;
            other.flush().await.ok();
            let answered = one.next().await.unwrap().unwrap();
            assert!(matches!(answered, Message::Close(Some(f)) if f.code == frame.code));
        }
    }
    let (mut near, mut far) = connect(&fixture).await;
    near.close(None).await.unwrap();
    assert_next(&mut far, &Message::Close(None)).await;
}

#[tokio::test]
async fn connection_loss_without_close_frame_is_passed_on() {
    let fixture = SocketFixture::new().await;
    let (near, mut far) = connect(&fixture).await;
    drop(near);
    let seen = far.next().await.unwrap().unwrap_err();
    let reset = ProtocolError::ResetWithoutClosingHandshake;
    assert!(matches!(seen, Error::Protocol(error) if error == reset));
}

/// A compressed frame and one with an unknown opcode pass unchanged.
#[tokio::test]
async fn unknown_frames_and_extensions_pass_unchanged() {
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
    let frames = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xf3\x00\x8b\x02\x00\x01end";
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
            assert_next(&mut other.1, &message).await;
        }
    };
    tokio::select! {
        () = fill => {}
        () = talk => {}
    }
}
