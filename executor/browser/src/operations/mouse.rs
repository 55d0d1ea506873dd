//! Mouse events of a page. Chromium hands them to the frame at their place.

use std::time::Duration;

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::geometry::Point;
use super::page::{Page, closed_error};
use crate::cdp::CdpError;
use crate::error::StepError;
use crate::program::MouseButton;

/// Time in which a page must take a turn of the wheel.
const WHEEL_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MouseEvent {
    r#type: &'static str,
    x: f64,
    y: f64,
    button: &'static str,
    /// Bits of the buttons that are pressed.
    buttons: u8,
    modifiers: u8,
    click_count: u8,
    /// Pressure of a pen, which pages see of mice too.
    force: f64,
}

impl MouseEvent {
    pub(super) fn moved(point: Point, modifiers: u8) -> Self {
        Self {
            r#type: "mouseMoved",
            x: point.x,
            y: point.y,
            button: "none",
            buttons: 0,
            modifiers,
            click_count: 0,
            force: 0.0,
        }
    }

    /// A move while the left button is pressed.
    pub(super) fn dragged(point: Point) -> Self {
        Self {
            button: "left",
            buttons: 1,
            force: 0.5,
            ..Self::moved(point, 0)
        }
    }

    pub(super) fn pressed(point: Point, button: MouseButton, modifiers: u8, click: u8) -> Self {
        let (name, bit) = match button {
            MouseButton::Left => ("left", 1),
            MouseButton::Right => ("right", 2),
            MouseButton::Middle => ("middle", 4),
        };
        Self {
            r#type: "mousePressed",
            button: name,
            buttons: bit,
            click_count: click,
            force: 0.5,
            ..Self::moved(point, modifiers)
        }
    }

    pub(super) fn at(self, point: Point) -> Self {
        let Point { x, y } = point;
        Self { x, y, ..self }
    }

    /// The release that ends this press.
    pub(super) fn released(self) -> Self {
        Self {
            r#type: "mouseReleased",
            buttons: 0,
            force: 0.0,
            ..self
        }
    }
}

impl Page {
    /// Sends events at once, so that nothing comes between them, and waits for their answers.
    pub(super) async fn send_mouse(
        &self,
        limit: Duration,
        events: &[MouseEvent],
    ) -> Result<(), CdpError> {
        if let Some(last) = events.last() {
            self.tabs.set_mouse(&self.tab.id, (last.x, last.y));
        }
        let session = &self.tab.session;
        let sending = events.iter().map(|event| {
            session.call_within::<IgnoredAny>(limit, "Input.dispatchMouseEvent", event)
        });
        let sending = futures::future::try_join_all(sending);
        self.input(async { sending.await.map(drop) }).await
    }

    pub(super) async fn turn_wheel(&self, delta_x: f64, delta_y: f64) -> Result<(), StepError> {
        let (x, y) = self.tabs.mouse(&self.tab.id);
        let params = json!({
            "type": "mouseWheel", "x": x, "y": y, "deltaX": delta_x, "deltaY": delta_y,
        });
        let session = &self.tab.session;
        let turning =
            session.call_within::<IgnoredAny>(WHEEL_TIMEOUT, "Input.dispatchMouseEvent", params);
        match self.input(async { turning.await.map(drop) }).await {
            // The page is busy, and scrolls later.
            Ok(()) | Err(CdpError::Timeout(_)) => Ok(()),
            Err(CdpError::Closed) => Err(closed_error("Mouse.wheel")),
            Err(error) => Err(StepError::new("Error", format!("Mouse.wheel: {error}"))),
        }
    }
}
