//! Programs on pipes: every byte arrives, however slow a viewer is.

use futures::{SinkExt as _, StreamExt as _};
use ring::digest::{Context, SHA256};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::viewer::{Viewer, create, info, open};
use crate::client::{KEY, SESSION_KEY, wait_until};
use crate::fixture::ServerFixture;

#[test]
fn input_ends_and_outputs_are_separate() {
    let server = ServerFixture::new("root");
    let script = "cat; echo problem >&2; exit 3";
    let body = json!({"command": ["sh", "-c", script], "tty": false});
    let (path, mut viewer) = open(&server, &body);
    assert_eq!(viewer.status(), json!({"offset": 0}));
    viewer.type_in("one\n");
    assert_eq!(viewer.until("one\n").text(), "one\n");
    // A size has no effect.
    viewer.resize(10, 10);
    viewer.type_in("two");
    viewer.end_input();
    let session = viewer.rest();
    assert_eq!(
        (session.text().as_str(), &session.error[..]),
        ("two", &b"problem\n"[..])
    );
    assert_eq!(session.statuses, [json!({"exit": {"code": 3}})]);
    assert_eq!(info(&server, &path)["tty"], false);
    // Both have one sequence of offsets.
    let mut back = Viewer::new(&server, &format!("{path}/connect?after=5"));
    assert_eq!(back.status(), json!({"offset": 5}));
    let session = back.rest();
    // Two pipes have no common order.
    let all = "one\ntwoproblem\n".len();
    assert_eq!(session.output.len() + session.error.len(), all - 5);
}

#[test]
fn output_waits_for_the_first_viewer() {
    let server = ServerFixture::new("root");
    let script = "head -c 1000000 /dev/zero; echo > written; echo end";
    let body = json!({"command": ["sh", "-c", script], "tty": false});
    let path = create(&server, &body);
    // A second terminal of the same kind shows that the first one had its chance to go on.
    let (_, mut other) = open(
        &server,
        &json!({"command": ["echo", "other"], "tty": false}),
    );
    other.rest();
    assert!(!server.path("written").exists());
    let mut viewer = Viewer::new(&server, &format!("{path}/connect"));
    let output = viewer.rest().output;
    assert_eq!(output.len(), 1_000_004);
    assert!(output.ends_with(b"\0end\n"));
}

#[test]
fn exited_program_keeps_its_last_output_for_a_viewer() {
    let server = ServerFixture::new("root");
    // More than the scrollback waits in the pipe when it exits.
    let body = json!({"command": ["head", "-c", "180000", "/dev/zero"], "tty": false});
    let path = create(&server, &body);
    wait_until(|| info(&server, &path)["state"] == "exited");
    let mut viewer = Viewer::new(&server, &format!("{path}/connect"));
    assert_eq!(viewer.rest().output.len(), 180_000);
}

#[test]
fn program_that_reads_nothing_does_not_hold_up_its_output() {
    let server = ServerFixture::new("root");
    let script = "echo begun; exec 0<&-; while [ ! -e stop ]; do sleep 0.01; done; echo end";
    let body = json!({"command": ["sh", "-c", script], "tty": false});
    let (_, mut viewer) = open(&server, &body);
    viewer.until("begun\n");
    for _ in 0..100 {
        viewer.send(&vec![0; 32 << 10]);
    }
    server.put("stop", b"");
    let session = viewer.rest();
    assert_eq!(
        (session.text().as_str(), session.exit()),
        ("end\n", &json!({"code": 0}))
    );
}

#[tokio::test]
async fn large_stream_is_unharmed_by_a_slow_reader() {
    const PIECE: usize = 32 << 10;
    const PIECES: usize = (64 << 20) / PIECE;
    let server = ServerFixture::new("root");
    let before = server.peak();
    let path = create(&server, &json!({"command": ["cat"], "tty": false}));
    let uri = format!("ws://x{path}/connect?session_api_key={KEY}");
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (socket, _) = client_async(uri.into_client_request().unwrap(), stream)
        .await
        .unwrap();
    let (mut sink, mut stream) = socket.split();
    let (begun, mut has_begun) = tokio::sync::oneshot::channel();
    let writing = tokio::spawn(async move {
        let (mut digest, mut begun) = (Context::new(&SHA256), Some(begun));
        for number in 0..PIECES {
            let byte = u8::try_from(number % 251).unwrap();
            let mut message = vec![byte; PIECE + 1];
            message[0] = 0;
            digest.update(&message[1..]);
            sink.send(Message::Binary(message.into())).await.unwrap();
            if number == 64 {
                begun.take().unwrap().send(()).unwrap();
            }
        }
        sink.send(Message::Binary(vec![255, 0].into()))
            .await
            .unwrap();
        (digest.finish(), sink)
    });
    // Nothing is read before the first 2 MiB are sent, and little at a time then.
    (&mut has_begun).await.unwrap();
    let (mut digest, mut count, mut exit) = (Context::new(&SHA256), 0, None);
    while let Some(message) = stream.next().await {
        let Ok(Message::Binary(message)) = message else {
            continue;
        };
        match message[0] {
            1 => {
                digest.update(&message[1..]);
                count += message.len() - 1;
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
            3 => exit = Some(message[1..].to_vec()),
            other => panic!("channel {other}"),
        }
    }
    let (sent, _sink) = writing.await.unwrap();
    assert_eq!(count, PIECE * PIECES);
    assert_eq!(digest.finish().as_ref(), sent.as_ref());
    assert_eq!(exit.unwrap(), br#"{"exit":{"code":0}}"#);
    let grown = server.peak() - before;
    assert!(grown < 8 << 10, "{grown} KiB");
    assert_eq!(
        server
            .request(&format!("GET {path}"), &[SESSION_KEY], b"")
            .status,
        200
    );
}
