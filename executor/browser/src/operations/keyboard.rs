//! Keyboard events of a page. Chromium hands them to the frame that has the focus.

use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::page::Page;
use crate::cdp::CdpError;
use crate::keys::Key;

impl Page {
    /// Presses keys in their order and releases them in the reverse one, all at once.
    pub(super) async fn press_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        let events = keys
            .iter()
            .map(key_down)
            .chain(keys.iter().rev().map(key_up));
        self.send_keys(limit, events.collect()).await
    }

    pub(super) async fn hold_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        self.send_keys(limit, keys.iter().map(key_down).collect())
            .await
    }

    pub(super) async fn release_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        self.send_keys(limit, keys.iter().rev().map(key_up).collect())
            .await
    }

    async fn send_keys(&self, limit: Duration, events: Vec<Value>) -> Result<(), CdpError> {
        let session = &self.tab.session;
        let sending = events
            .into_iter()
            .map(|event| session.call_within::<IgnoredAny>(limit, "Input.dispatchKeyEvent", event));
        let sending = futures::future::try_join_all(sending);
        self.input(async { sending.await.map(drop) }).await
    }

    /// Inserts a text in place of the selection, as one edit.
    pub(super) async fn insert_text(&self, limit: Duration, text: &str) -> Result<(), CdpError> {
        let session = &self.tab.session;
        let params = json!({"text": text});
        let inserting = session.call_within::<IgnoredAny>(limit, "Input.insertText", params);
        self.input(async { inserting.await.map(drop) }).await
    }
}

fn key_down(key: &Key) -> Value {
    let text = key.text.unwrap_or_default();
    json!({
        "type": if text.is_empty() { "rawKeyDown" } else { "keyDown" },
        "modifiers": key.modifiers,
        "windowsVirtualKeyCode": key.windows_virtual_key_code,
        "code": key.code,
        "key": key.key,
        "text": text,
        "unmodifiedText": text,
        "location": key.location,
        "isKeypad": key.is_keypad(),
    })
}

fn key_up(key: &Key) -> Value {
    json!({
        "type": "keyUp",
        "modifiers": key.modifiers_after_release(),
        "windowsVirtualKeyCode": key.windows_virtual_key_code,
        "code": key.code,
        "key": key.key,
        "location": key.location,
    })
}
