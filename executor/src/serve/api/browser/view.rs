//! Live view: pictures of the active tab out, inputs of a person in. Only the viewer who has taken
//! control can act; meanwhile the agent's actions wait.

use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use browser::tabs::ViewerInput;
use futures::FutureExt as _;
use futures::future::{BoxFuture, OptionFuture};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Part, close, tabs};
use crate::serve::executor::Executor;
use crate::serve::plugins::browser::ControlGuard;

pub(super) const MAX_INPUT_BYTES: usize = 1 << 20;
/// Pictures come at most so often: each costs the browser CPU time.
const PICTURE_INTERVAL: Duration = Duration::from_millis(66);
/// The address is told, and another active tab is found, so often.
const STATE_INTERVAL: Duration = Duration::from_millis(250);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(untagged)]
enum Received {
    Control(Control),
    Input(ViewerInput),
}

/// `{"type": "control", "held": true}`
#[derive(Deserialize)]
#[serde(tag = "type", rename = "control")]
struct Control {
    held: bool,
}

pub(super) async fn serve(executor: &Executor, mut socket: WebSocket) {
    let (Ok(tabs), Some(browser)) = (tabs(executor, Part::View).await, &executor.plugins.browser)
    else {
        return close(socket).await;
    };
    let _running = executor.activity.begin();
    let _using = browser.hold();
    if tabs.active().is_none() && tabs.open("about:blank").await.is_err() {
        return close(socket).await;
    }
    let Some(mut viewer) = tabs.view() else {
        return close(socket).await;
    };
    let mut control: Option<ControlGuard> = None;
    // Control that was asked for, until the agent's step has ended.
    let mut coming: Option<BoxFuture<'_, ControlGuard>> = None;
    let mut states = tokio::time::interval(STATE_INTERVAL);
    states.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_picture = Instant::now();
    loop {
        let picture = async {
            tokio::time::sleep_until(next_picture).await;
            viewer.next().await
        };
        let message = tokio::select! {
            picture = picture => {
                let Some(picture) = picture else {
                    break;
                };
                next_picture = Instant::now() + PICTURE_INTERVAL;
                Some(Message::Binary(picture.jpeg.clone().into()))
            }
            Some(guard) = OptionFuture::from(coming.as_mut()) => {
                coming = None;
                control = Some(guard);
                None
            }
            _ = states.tick() => {
                let active = viewer.follow();
                let held = browser.is_controlled();
                let url = active.map(|tab| tab.url).unwrap_or_default();
                let state = json!({
                    "url": url, "control": control.is_some(), "waits": coming.is_some(), "held": held,
                });
                Some(Message::Text(Utf8Bytes::from(state.to_string())))
            }
            received = socket.recv() => match received {
                Some(Ok(Message::Text(text))) => {
                    match serde_json::from_str(&text) {
                        Ok(Received::Control(Control { held: true })) if control.is_none() => {
                            if let Some(taking) = browser.take_control() {
                                coming = Some(taking.boxed());
                            }
                        }
                        Ok(Received::Control(Control { held: false })) => {
                            (control, coming) = (None, None);
                        }
                        Ok(Received::Input(input)) if control.is_some() => viewer.input(input),
                        // Inputs without control, and what is not understood, have no effect.
                        _ => {}
                    }
                    None
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => None,
            },
        };
        if let Some(message) = message {
            let sending = tokio::time::timeout(SEND_TIMEOUT, socket.send(message));
            if !sending.await.is_ok_and(|sent| sent.is_ok()) {
                break;
            }
        }
    }
    drop((control, coming));
    close(socket).await;
}
