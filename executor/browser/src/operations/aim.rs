//! Finds the point at which the pointer reaches an element (section 2.4), and checks that the
//! events at that point go to the element.

use serde::Deserialize;
use serde_json::json;

use super::element_call::{ElementCall, TryError};
use super::frame_places::{FramePlaces, no_box};
use super::geometry::{Point, Quad};
use super::locate::Target;
use super::scripts;
use crate::cdp::CdpError;
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
    /// Finds a point at which the pointer hits the element. The events there are checked until
    /// `release_pointer`.
    pub(super) async fn aim(&self, aim: Aim) -> Result<Point, TryError> {
        let arguments = [json!(aim.states), json!(self.tries)];
        self.try_script::<()>(scripts::PREPARE_POINTER, &arguments)
            .await?;
        let Target { element, owners } = &self.target;
        let places = FramePlaces::find(&self.target, self.limit());
        let (places, quads) = tokio::try_join!(places, self.content_quads(element))?;
        let (Some(places), Some(quads)) = (places, quads) else {
            return Err(TryError::Retry("element is not visible".into()));
        };
        let (width, height) = VIEWPORT;
        let on_page = |quad: Quad| quad.map(|point| places.outward(point));
        let in_viewport = |quad: Quad| on_page(quad).clip(width.into(), height.into());
        let mut visible = quads.into_iter().map(in_viewport);
        let Some(quad) = visible.find(|quad| quad.area() > MIN_AREA) else {
            let reason = "element is outside of the viewport";
            return Err(TryError::Retry(reason.into()));
        };
        let point = quad.middle().cut();
        // From the page down, as the pointer goes.
        let points = places.inward(point);
        for (owner, point) in owners.iter().zip(&points) {
            self.check_pointer(owner, *point, &[]).await?;
        }
        self.check_pointer(element, points[owners.len()], aim.events)
            .await?;
        Ok(point)
    }

    async fn check_pointer(
        &self,
        element: &Element,
        point: Point,
        events: &[&str],
    ) -> Result<(), TryError> {
        let arguments = [json!(point.x), json!(point.y), json!(events)];
        self.try_script_on(element, scripts::CHECK_POINTER, &arguments)
            .await
    }

    /// Ends a try with the result of its events, which must have gone to the element.
    pub(super) async fn release_pointer(
        &self,
        point: Point,
        sent: Result<(), CdpError>,
    ) -> Result<Point, TryError> {
        let released = self.try_script(scripts::RELEASE_POINTER, &[]).await;
        sent?;
        match released {
            Ok(()) => Ok(point),
            // The events have replaced the document, or closed the tab.
            Err(TryError::Script(error)) if error.is_transient() || self.page.is_gone() => {
                Ok(point)
            }
            Err(error) => Err(error),
        }
    }

    async fn content_quads(&self, element: &Element) -> Result<Option<Vec<Quad>>, ScriptError> {
        #[derive(Deserialize)]
        struct ContentQuads {
            quads: Vec<[f64; 8]>,
        }
        let params = json!({"objectId": element.object_id});
        let calling = element.session.call_within::<ContentQuads>(
            self.limit(),
            "DOM.getContentQuads",
            params,
        );
        match calling.await {
            Ok(answer) if answer.quads.is_empty() => Ok(None),
            Ok(answer) => Ok(Some(answer.quads.into_iter().map(Quad::from).collect())),
            Err(error) => no_box(error),
        }
    }
}
