//! Keyboard events of a page. They go to the session of the page, also for frames of other
//! sites: Chromium hands them to the frame that has the focus.

use std::time::Duration;

use serde_json::{Value, json};

use super::page::Page;
use crate::cdp::CdpError;
use crate::keys::{Key, Modifier};

const METHOD: &str = "Input.dispatchKeyEvent";

impl Page {
    /// Presses keys in their order, and releases them in the reverse one.
    pub(super) async fn press_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        let releases = key_ups(keys, keys.iter().rev());
        self.send_input(limit, METHOD, key_downs(keys).chain(releases))
            .await
    }

    pub(super) async fn hold_keys(&self, limit: Duration, keys: &[Key]) -> Result<(), CdpError> {
        self.send_input(limit, METHOD, key_downs(keys)).await
    }

    /// Releases modifiers in the order in which they were pressed.
    pub(super) async fn release_modifiers(
        &self,
        limit: Duration,
        modifiers: &[Key],
    ) -> Result<(), CdpError> {
        let events = key_ups(modifiers, modifiers.iter());
        self.send_input(limit, METHOD, events).await
    }

    /// Inserts a text in place of the selection, as one edit.
    pub(super) async fn insert_text(&self, limit: Duration, text: &str) -> Result<(), CdpError> {
        let params = json!({"text": text});
        self.send_input(limit, "Input.insertText", [params]).await
    }
}

fn key_downs(keys: &[Key]) -> impl Iterator<Item = Value> {
    keys.iter().enumerate().map(|(at, key)| {
        let is_held = keys[..at].iter().any(|earlier| earlier.code == key.code);
        key_down(key, is_held)
    })
}

/// Releases of all `keys` in this order. A modifier that is pressed twice ends with the first of them.
fn key_ups<'a>(keys: &[Key], order: impl Iterator<Item = &'a Key>) -> impl Iterator<Item = Value> {
    let mut held = keys.last().map_or(0, |last| last.modifiers);
    order.map(move |key| {
        held &= !key.modifier.map_or(0, Modifier::bit);
        key_up(key, held)
    })
}

fn key_down(key: &Key, is_repeated: bool) -> Value {
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
        "autoRepeat": is_repeated,
    })
}

/// `held` has the bits of the modifiers that stay pressed.
fn key_up(key: &Key, held: u8) -> Value {
    json!({
        "type": "keyUp",
        "modifiers": held,
        "windowsVirtualKeyCode": key.windows_virtual_key_code,
        "code": key.code,
        "key": key.key,
        "location": key.location,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::parse_combination;

    #[test]
    fn modifier_that_is_pressed_twice_ends_with_the_first_release() {
        let keys = parse_combination("Shift+Control+ControlRight+Shift+a").unwrap();
        let repeated: Vec<_> = key_downs(&keys)
            .map(|event| event["autoRepeat"].clone())
            .collect();
        assert_eq!(repeated, [false, false, false, true, false]);
        let held: Vec<_> = key_ups(&keys, keys.iter().rev())
            .map(|event| event["modifiers"].clone())
            .collect();
        assert_eq!(held, [10, 2, 0, 0, 0]);
    }
}
