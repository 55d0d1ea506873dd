//! A client of the `DevTools` protocol: its messages to the browser and back.

use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use browser::tabs::Relay;

use super::close;
use crate::serve::executor::Executor;
use crate::serve::plugins::browser::Browser;

/// Time in which a client must take a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn serve(executor: &Executor, mut relay: Relay, mut socket: WebSocket) {
    // An open client is activity: an idle pause would end it.
    let _running = executor.activity.begin();
    let _using = executor.plugins.browser.as_ref().map(Browser::hold);
    loop {
        let sent = tokio::select! {
            message = relay.next() => {
                let Some(text) = message.and_then(|text| Utf8Bytes::try_from(text).ok()) else {
                    break;
                };
                let sending = socket.send(Message::Text(text));
                tokio::time::timeout(SEND_TIMEOUT, sending).await.is_ok_and(|sent| sent.is_ok())
            }
            received = socket.recv() => match received {
                Some(Ok(Message::Text(text))) => relay.send(text.as_bytes()).is_ok(),
                Some(Ok(Message::Close(_)) | Err(_)) | None => false,
                Some(Ok(_)) => true,
            },
        };
        if !sent {
            break;
        }
    }
    close(socket).await;
}
