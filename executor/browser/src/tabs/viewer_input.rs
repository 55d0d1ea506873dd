//! Inputs of a person who watches a tab and has taken control.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Viewer;

/// One input, as a page in a person's browser sends it. Positions are CSS pixels of the viewport.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum ViewerInput {
    #[serde(rename_all = "camelCase")]
    Mouse {
        kind: MouseKind,
        x: f64,
        y: f64,
        #[serde(default)]
        button: MouseButton,
        #[serde(default)]
        clicks: u8,
        #[serde(default)]
        modifiers: u8,
        #[serde(default)]
        delta_x: f64,
        #[serde(default)]
        delta_y: f64,
    },
    #[serde(rename_all = "camelCase")]
    Key {
        kind: KeyKind,
        key: String,
        code: String,
        key_code: u16,
        #[serde(default)]
        text: String,
        #[serde(default)]
        modifiers: u8,
    },
    /// Text as one edit, from an input method or the clipboard.
    Text {
        text: String,
    },
    Visit {
        url: String,
    },
    Back,
    Forward,
    Reload,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MouseKind {
    Moved,
    Pressed,
    Released,
    Wheel,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MouseButton {
    #[default]
    None,
    Left,
    Middle,
    Right,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyKind {
    Down,
    Up,
}

impl Viewer {
    /// Passes an input to the tab that is watched, without waiting for its effect.
    pub fn input(&self, input: ViewerInput) {
        let Some(tab) = self.tab.as_ref().and_then(|tab| self.tabs.get(tab)) else {
            return;
        };
        let (method, params): (&str, Value) = match input {
            ViewerInput::Mouse {
                kind,
                x,
                y,
                button,
                clicks,
                modifiers,
                delta_x,
                delta_y,
            } => {
                let kind = match kind {
                    MouseKind::Moved => "mouseMoved",
                    MouseKind::Pressed => "mousePressed",
                    MouseKind::Released => "mouseReleased",
                    MouseKind::Wheel => "mouseWheel",
                };
                let button = match button {
                    MouseButton::None => "none",
                    MouseButton::Left => "left",
                    MouseButton::Middle => "middle",
                    MouseButton::Right => "right",
                };
                let params = json!({
                    "type": kind, "x": x, "y": y, "button": button, "clickCount": clicks,
                    "modifiers": modifiers, "deltaX": delta_x, "deltaY": delta_y,
                });
                ("Input.dispatchMouseEvent", params)
            }
            ViewerInput::Key {
                kind,
                key,
                code,
                key_code,
                text,
                modifiers,
            } => {
                let kind = match kind {
                    KeyKind::Down if text.is_empty() => "rawKeyDown",
                    KeyKind::Down => "keyDown",
                    KeyKind::Up => "keyUp",
                };
                let params = json!({
                    "type": kind, "key": key, "code": code, "text": text, "modifiers": modifiers,
                    "windowsVirtualKeyCode": key_code,
                });
                ("Input.dispatchKeyEvent", params)
            }
            ViewerInput::Text { text } => ("Input.insertText", json!({"text": text})),
            ViewerInput::Visit { url } => ("Page.navigate", json!({"url": url})),
            ViewerInput::Reload => ("Page.reload", json!({})),
            ViewerInput::Back => history("back"),
            ViewerInput::Forward => history("forward"),
        };
        tab.session.send(method, params);
    }
}

fn history(direction: &str) -> (&'static str, Value) {
    let expression = format!("history.{direction}()");
    (
        "Runtime.evaluate",
        json!({"expression": expression, "userGesture": true}),
    )
}
