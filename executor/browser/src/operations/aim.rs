//! Finds the point at which the pointer reaches an element (section 2.4), and checks that the
//! events at that point go to the element.

use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::json;

use super::element_call::{ElementCall, Reply};
use super::frame_places::{FramePlaces, no_box};
use super::geometry::{Point, Quad};
use super::locate::Target;
use super::scripts;
use crate::error::StepError;
use crate::tabs::{Element, ScriptError, VIEWPORT};

/// Least area in which the pointer can hit an element, in square pixels.
const MIN_AREA: f64 = 0.99;

/// Demands on an element, and the events that are checked when they come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    pub(super) states: &'static [&'static str],
    pub(super) events: &'static [&'static str],
}

impl ElementCall<'_> {
    /// Brings the element to the pointer, calls `act` with the point, and checks that the
    /// element got the events.
    pub(super) async fn point(
        &self,
        target: &mut Target,
        aim: Aim,
        act: impl AsyncFn(Point) -> Result<(), ScriptError>,
    ) -> Result<Point, StepError> {
        let pointing = self.run(target, async |target, attempt| {
            let point = match self.aim(target, aim, attempt).await? {
                Reply::Done(point) => point,
                failure => return Ok(failure),
            };
            let acted = act(point).await;
            let released = self.release_pointer(target).await;
            acted?;
            Ok(released?.map(|()| point))
        });
        pointing.await
    }

    /// Finds a point at which the pointer hits the element, whose events are then checked.
    async fn aim(
        &self,
        target: &Target,
        aim: Aim,
        attempt: usize,
    ) -> Result<Reply<Point>, ScriptError> {
        let arguments = [json!(aim.states), json!(attempt)];
        let element = &target.element;
        let preparing = self.script::<Reply<()>>(element, scripts::PREPARE_POINTER, &arguments);
        match preparing.await? {
            Reply::Done(()) => {}
            failure => return Ok(failure.map(|()| Point::ORIGIN)),
        }
        let places = FramePlaces::find(target, self.deadline.remaining());
        let (places, quads) = tokio::try_join!(places, self.content_quads(element))?;
        let (Some(places), Some(quads)) = (places, quads) else {
            return Ok(Reply::Retry("element is not visible".into()));
        };
        let (width, height) = VIEWPORT;
        let on_page = |quad: Quad| quad.map(|point| places.outward(point));
        let in_viewport = |quad: Quad| on_page(quad).clip(width.into(), height.into());
        let mut visible = quads.into_iter().map(in_viewport);
        let Some(quad) = visible.find(|quad| quad.area() > MIN_AREA) else {
            return Ok(Reply::Retry("element is outside of the viewport".into()));
        };
        let point = quad.middle();
        let points = places.inward(point);
        let owners = target.owners.iter().zip(&points);
        let checks = owners.map(|(owner, point)| self.check_pointer(owner, *point, &[]));
        for reply in try_join_all(checks).await? {
            if !matches!(reply, Reply::Done(())) {
                return Ok(reply.map(|()| point));
            }
        }
        let inner = points[target.owners.len()];
        let reply = self.check_pointer(&target.element, inner, aim.events);
        Ok(reply.await?.map(|()| point))
    }

    async fn check_pointer(
        &self,
        element: &Element,
        point: Point,
        events: &[&str],
    ) -> Result<Reply<()>, ScriptError> {
        let arguments = [json!(point.x), json!(point.y), json!(events)];
        self.script(element, scripts::CHECK_POINTER, &arguments)
            .await
    }

    /// Tells whether the checked events went to the element.
    async fn release_pointer(&self, target: &Target) -> Result<Reply<()>, ScriptError> {
        let releasing = self.script(&target.element, scripts::RELEASE_POINTER, &[]);
        match releasing.await {
            // The events have replaced the document, or closed the tab.
            Err(error) if error.is_transient() || self.page.is_gone() => Ok(Reply::Done(())),
            reply => reply,
        }
    }

    async fn content_quads(&self, element: &Element) -> Result<Option<Vec<Quad>>, ScriptError> {
        #[derive(Deserialize)]
        struct Answer {
            quads: Vec<[f64; 8]>,
        }
        let params = json!({"objectId": element.object_id});
        let limit = self.deadline.remaining();
        let calling = element
            .session
            .call_within::<Answer>(limit, "DOM.getContentQuads", params);
        match calling.await {
            Ok(answer) if answer.quads.is_empty() => Ok(None),
            Ok(answer) => Ok(Some(answer.quads.into_iter().map(Quad::from).collect())),
            Err(error) => no_box(error),
        }
    }
}
