//! Sessions of terminals whose connection breaks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use client::{Error, ExitStatus, NewTerminal, Session, TerminalEvent};
use http::StatusCode;
use serde_json::{Value, json};

use crate::fixture::{path, sandbox, serve};

/// A terminal whose first connection breaks after `one`.
fn router(connections: &Arc<AtomicU32>) -> Router {
    let create = async |Json(body): Json<Value>| {
        let terminal = json!({
            "id": "t1", "command": body["command"], "tty": body["tty"], "columns": 80, "rows": 24,
            "viewers": 0, "state": "running", "exit_code": null, "signal": null,
            "created_at": "2026-11-27T04:00:00Z",
        });
        (StatusCode::CREATED, Json(terminal))
    };
    let connect = async |State(connections): State<Arc<AtomicU32>>,
                         Query(query): Query<HashMap<String, String>>,
                         upgrade: WebSocketUpgrade|
           -> Response {
        let number = connections.fetch_add(1, Ordering::SeqCst);
        upgrade.on_upgrade(async move |socket| {
            script(socket, number, query.get("after").cloned()).await;
        })
    };
    Router::new()
        .route(&path("/terminals"), post(create))
        .route(&path("/terminals/t1/connect"), get(connect))
        .with_state(connections.clone())
}

async fn script(mut socket: WebSocket, number: u32, after: Option<String>) {
    let binary = |text: &str| Message::Binary(Bytes::copy_from_slice(text.as_bytes()));
    if number == 0 {
        assert_eq!(after, None);
        socket.send(binary("\u{3}{\"offset\": 5}")).await.unwrap();
        // The client has typed or ended its input when this arrives.
        socket.recv().await.unwrap().unwrap();
        socket.send(binary("\u{1}one")).await.unwrap();
        return;
    }
    assert_eq!(after.as_deref(), Some("8"));
    socket.send(binary("\u{3}{\"offset\": 8}")).await.unwrap();
    socket.send(binary("\u{1}two")).await.unwrap();
    socket
        .send(binary("\u{3}{\"exit\": {\"code\": 7}}"))
        .await
        .unwrap();
}

async fn session(address: std::net::SocketAddr, is_tty: bool) -> Session {
    let terminal = NewTerminal {
        tty: is_tty,
        ..NewTerminal::piped(["cat"])
    };
    sandbox(address).exec(&terminal).await.unwrap()
}

#[tokio::test]
async fn terminal_goes_on_after_the_last_byte() {
    let connections = Arc::new(AtomicU32::new(0));
    let address = serve(router(&connections)).await;
    let mut session = session(address, true).await;
    session.input().write(b"x").await.unwrap();
    let output =
        |text: &'static str| Some(TerminalEvent::Output(Bytes::from_static(text.as_bytes())));
    assert_eq!(session.next().await.unwrap(), output("one"));
    assert_eq!(session.next().await.unwrap(), output("two"));
    assert_eq!(
        session.next().await.unwrap(),
        Some(TerminalEvent::Exit(ExitStatus::Code(7)))
    );
    assert_eq!(session.next().await.unwrap(), None);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn pipe_without_input_goes_on_and_one_with_input_ends() {
    for (has_input, expected) in [(false, 2), (true, 1)] {
        let connections = Arc::new(AtomicU32::new(0));
        let address = serve(router(&connections)).await;
        let mut session = session(address, false).await;
        if has_input {
            session.input().write(b"data").await.unwrap();
        } else {
            session.input().end().await.unwrap();
        }
        let end = loop {
            match session.next().await {
                Ok(Some(_)) => {}
                end => break end,
            }
        };
        if has_input {
            assert!(matches!(end, Err(Error::Disconnected(_))), "{end:?}");
        } else {
            assert_eq!(end.unwrap(), None);
        }
        assert_eq!(connections.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test]
async fn server_without_terminals_is_unsupported() {
    let runtime = async |headers: http::HeaderMap| {
        let address = headers["host"].to_str().unwrap().parse().unwrap();
        Json(crate::fixture::info(address, "running"))
    };
    let address = serve(Router::new().route("/runtime/{id}", get(runtime))).await;
    let opened = sandbox(address)
        .open_terminal(&NewTerminal::default())
        .await;
    assert!(matches!(opened, Err(Error::Unsupported(_))), "{opened:?}");
}
