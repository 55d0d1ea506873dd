//! Keyboard events of a page. They go to the session of the page, also for frames of other
//! sites: Chromium hands them to the frame that has the focus.

use std::time::Duration;

use serde_json::{Value, json};

use super::page::Page;
use crate::cdp::CdpError;
use crate::keys::Key;

const METHOD: &str = "Input.dispatchKeyEvent";

impl Page {
    /// Presses keys in their order, and releases them in the reverse one.
    pub(super) async fn press_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        let releases = keys.iter().rev().map(key_up);
        let events = keys.iter().map(key_down).chain(releases);
        self.send_input(limit, METHOD, events).await
    }

    pub(super) async fn hold_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        let events = keys.iter().map(key_down);
        self.send_input(limit, METHOD, events).await
    }

    pub(super) async fn release_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        let events = keys.iter().rev().map(key_up);
        self.send_input(limit, METHOD, events).await
    }

    /// Inserts a text in place of the selection, as one edit.
    pub(super) async fn insert_text(&self, limit: Duration, text: &str) -> Result<(), CdpError> {
        let params = json!({"text": text});
        self.send_input(limit, "Input.insertText", [params]).await
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
