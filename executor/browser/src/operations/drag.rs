//! Dragging with the mouse. Where the page starts a drag of its own, Chromium hands over its data
//! instead of starting one in the window system, and this module sends the events of that drag.

use std::time::Duration;

use serde_json::{Value, json};

use super::click::{HOVER, HOVER_AIM};
use super::element_call::{ElementCall, TryError};
use super::geometry::Point;
use super::mouse::MouseEvent;
use super::page::Page;
use super::scripts;
use crate::cdp::CdpError;
use crate::error::StepError;
use crate::program::{Deferred, MouseButton};
use crate::tabs::Element;

/// Time for an event that ends a drag.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// Distance at which a press becomes a drag, in pixels.
const PULL: f64 = 5.0;
/// Place to release the button where no element gets a click.
const OUTSIDE: Point = Point { x: -1.0, y: -1.0 };

/// A pressed button on its way.
struct Drag<'a> {
    page: &'a Page,
    press: MouseEvent,
    /// Data of the drag that the page has started.
    data: Option<Value>,
}

impl Page {
    pub(super) async fn drag(
        &self,
        from_bid: &str,
        to_bid: Deferred<String>,
    ) -> Result<(), StepError> {
        let mut from = ElementCall::begin(self, from_bid, HOVER).await?;
        let start = from.hover().await?;
        let to_bid = to_bid?;
        // Before the button is pressed: there is less to undo.
        let mut to = ElementCall::begin(self, &to_bid, HOVER).await?;
        let before = self.navigations();
        let mut drag = Drag {
            page: self,
            press: MouseEvent::pressed(start, MouseButton::Left, 0, 1),
            data: None,
        };
        let pulled = drag.pull(start, &from.target.element, to.limit()).await;
        let dragged = match pulled {
            Ok(()) => drag.move_over(&mut to).await,
            Err(error) => Err(StepError::new("Error", format!("Mouse.down: {error}"))),
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
    /// Presses the button and pulls, so that the page can start a drag of its own.
    async fn pull(
        &mut self,
        start: Point,
        source: &Element,
        limit: Duration,
    ) -> Result<(), CdpError> {
        let Page { tabs, tab } = self.page;
        tabs.forget_interceptions(&tab.id);
        self.page.send_mouse(limit, &[self.press]).await?;
        // Without an answer, the source is gone, and there is nothing to drag.
        let _ = source.call::<Value>(limit, scripts::WATCH_DRAG, &[]).await;
        self.intercept(true, limit).await?;
        let events = [MouseEvent::dragged(pulled(start))];
        let pulled = self.page.send_mouse(limit, &events).await;
        let started = source.call::<bool>(limit, scripts::HAS_DRAG_STARTED, &[]);
        if pulled.is_ok() && started.await.unwrap_or(false) {
            self.data = tabs.drag(&tab.id, limit).await;
        }
        self.intercept(false, limit).await?;
        pulled
    }

    async fn intercept(&self, is_on: bool, limit: Duration) -> Result<(), CdpError> {
        let params = json!({"enabled": is_on});
        let method = "Input.setInterceptDrags";
        self.page.send_input(limit, method, [params]).await
    }

    async fn move_over(&self, call: &mut ElementCall<'_>) -> Result<Point, StepError> {
        loop {
            let result = self.try_move_over(call).await;
            if let Some(point) = call.conclude(result).await? {
                return Ok(point);
            }
        }
    }

    async fn try_move_over(&self, call: &ElementCall<'_>) -> Result<Point, TryError> {
        let point = call.aim(HOVER_AIM).await?;
        let sent = self.move_to(point, call.limit()).await;
        call.release_pointer(point, sent).await
    }

    async fn move_to(&self, point: Point, limit: Duration) -> Result<(), CdpError> {
        let Some(data) = &self.data else {
            let events = [MouseEvent::dragged(point)];
            return self.page.send_mouse(limit, &events).await;
        };
        self.send("dragEnter", data, point, limit).await?;
        self.send("dragOver", data, point, limit).await
    }

    async fn drop_at(&self, point: Point) -> Result<(), CdpError> {
        match &self.data {
            None => self.release_at(point).await,
            Some(data) => {
                self.page
                    .tabs
                    .set_mouse(&self.page.tab.id, (point.x, point.y));
                self.send("drop", data, point, END_TIMEOUT).await
            }
        }
    }

    async fn abandon(&self) -> Result<(), CdpError> {
        if let Some(data) = &self.data {
            self.send("dragCancel", data, OUTSIDE, END_TIMEOUT).await?;
        }
        let released = self.release_at(OUTSIDE).await;
        let Page { tabs, tab } = self.page;
        tabs.set_mouse(&tab.id, self.press.position());
        released
    }

    async fn send(
        &self,
        r#type: &str,
        data: &Value,
        point: Point,
        limit: Duration,
    ) -> Result<(), CdpError> {
        let params = json!({"type": r#type, "x": point.x, "y": point.y, "data": data});
        let method = "Input.dispatchDragEvent";
        self.page.send_input(limit, method, [params]).await
    }

    async fn release_at(&self, point: Point) -> Result<(), CdpError> {
        let events = [self.press.released().at(point)];
        self.page.send_mouse(END_TIMEOUT, &events).await
    }
}

/// A point at the distance of a drag, away from the edges of the viewport.
fn pulled(Point { x, y }: Point) -> Point {
    let inward = |at: f64| if at > PULL { at - PULL } else { at + PULL };
    Point {
        x: inward(x),
        y: inward(y),
    }
}
