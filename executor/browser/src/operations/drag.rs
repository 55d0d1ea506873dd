//! Dragging with the mouse. Where the page starts a drag of its own, Chromium hands over its data
//! instead of starting one in the window system, and this module sends the events of that drag.

use std::time::Duration;

use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::click::{HOVER, HOVER_AIM};
use super::element_call::ElementCall;
use super::geometry::Point;
use super::mouse::MouseEvent;
use super::page::Page;
use super::scripts;
use crate::cdp::CdpError;
use crate::error::StepError;
use crate::program::{Deferred, MouseButton};
use crate::tabs::{Element, ScriptError};

/// Time for an event that ends a drag.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// Releases the button where no element gets a click.
const OUTSIDE: Point = Point { x: -1.0, y: -1.0 };

/// A pressed button on its way.
struct Drag<'a> {
    page: &'a Page,
    /// Element under the button when it was pressed.
    source: &'a Element,
    state: Mutex<DragState>,
}

struct DragState {
    press: MouseEvent,
    /// Data of a drag that the page has started.
    data: Option<Value>,
}

impl Page {
    pub(super) async fn drag(
        &self,
        from_bid: &str,
        to_bid: Deferred<String>,
    ) -> Result<(), StepError> {
        let (from, mut source) = ElementCall::begin(self, from_bid, HOVER).await?;
        let moving = async |point| {
            let events = [MouseEvent::moved(point, 0)];
            Ok(self.send_mouse(from.input_limit(), &events).await?)
        };
        let start = from.point(&mut source, HOVER_AIM, moving).await?;
        let to_bid = to_bid?;
        // Before the button is pressed: there is less to undo.
        let (to, mut target) = ElementCall::begin(self, &to_bid, HOVER).await?;
        let press = MouseEvent::pressed(start, MouseButton::Left, 0, 1);
        let drag = Drag {
            page: self,
            source: &source.element,
            state: Mutex::new(DragState { press, data: None }),
        };
        let before = self.navigations();
        let pressed = self.send_mouse(to.input_limit(), &[press]).await;
        let dragged = match pressed {
            Ok(()) => {
                let moving = async |point| drag.move_to(point, to.input_limit()).await;
                to.point(&mut target, HOVER_AIM, moving).await
            }
            Err(error) => Err(to.error(&target, &error.into()).await),
        };
        let ended = match &dragged {
            Ok(point) => drag.drop_at(*point).await,
            Err(_) => drag.abandon().await,
        };
        self.wait_for_navigations(&before).await;
        dragged?;
        ended.map_err(|error| StepError::new("Error", format!("Mouse.up: {error}")))
    }
}

impl Drag<'_> {
    async fn move_to(&self, point: Point, limit: Duration) -> Result<(), ScriptError> {
        let data = self.state.lock().data.clone();
        if data.is_none() {
            let started = self.start(point, limit).await?;
            self.state.lock().data.clone_from(&started);
            if started.is_some() {
                self.send("dragEnter", point, limit).await?;
            }
        }
        self.send("dragOver", point, limit).await?;
        Ok(())
    }

    /// Moves the mouse, which may start a drag: then returns its data.
    async fn start(&self, point: Point, limit: Duration) -> Result<Option<Value>, ScriptError> {
        let Page { tabs, tab } = self.page;
        tabs.forget_interceptions(&tab.id);
        let source = self.source;
        // Without an answer, the source is gone, and there is nothing to drag.
        let _ = source.call::<Value>(limit, scripts::WATCH_DRAG, &[]).await;
        self.intercept(true, limit).await?;
        let events = [MouseEvent::dragged(point)];
        let moved = self.page.send_mouse(limit, &events).await;
        let started = source.call::<bool>(limit, scripts::HAS_DRAG_STARTED, &[]);
        let has_started = moved.is_ok() && started.await.unwrap_or(false);
        let data = if has_started {
            tabs.drag(&tab.id, limit).await
        } else {
            None
        };
        self.intercept(false, limit).await?;
        moved?;
        Ok(data)
    }

    async fn intercept(&self, is_on: bool, limit: Duration) -> Result<(), CdpError> {
        let params = json!({"enabled": is_on});
        let session = &self.page.tab.session;
        let switching = session.call_within::<IgnoredAny>(limit, "Input.setInterceptDrags", params);
        self.page.input(async { switching.await.map(drop) }).await
    }

    /// Sends an event of the drag, if there is one.
    async fn send(&self, r#type: &str, point: Point, limit: Duration) -> Result<(), CdpError> {
        let Some(data) = self.state.lock().data.clone() else {
            return Ok(());
        };
        let params = json!({"type": r#type, "x": point.x, "y": point.y, "data": data});
        let session = &self.page.tab.session;
        let sending = session.call_within::<IgnoredAny>(limit, "Input.dispatchDragEvent", params);
        self.page.input(async { sending.await.map(drop) }).await
    }

    async fn drop_at(&self, point: Point) -> Result<(), CdpError> {
        let is_drag = self.state.lock().data.is_some();
        if is_drag {
            self.send("drop", point, END_TIMEOUT).await
        } else {
            self.release_at(point).await
        }
    }

    async fn abandon(&self) -> Result<(), CdpError> {
        self.send("dragCancel", OUTSIDE, END_TIMEOUT).await?;
        self.release_at(OUTSIDE).await
    }

    async fn release_at(&self, point: Point) -> Result<(), CdpError> {
        let release = self.state.lock().press.released().at(point);
        self.page.send_mouse(END_TIMEOUT, &[release]).await
    }
}
