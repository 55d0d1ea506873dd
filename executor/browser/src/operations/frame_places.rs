//! Places of the frames around an element in the viewport of the page.
//!
//! A process knows its frames relative to its outermost one, the local root; only the process of
//! the parent knows where that one is.

use std::time::Duration;

use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::json;

use super::geometry::{Placement, Point, Quad};
use super::locate::Target;
use super::scripts;
use crate::cdp::CdpError;
use crate::tabs::{Element, ScriptError};

/// The frames on the way to an element. The main frame has number 0.
#[derive(Debug)]
pub(super) struct FramePlaces {
    /// Place of frame 1 and so on in the local root of its parent.
    placements: Vec<Placement>,
    /// Number of the local root of each frame.
    roots: Vec<usize>,
}

impl FramePlaces {
    /// Asks for the places; `None` if a frame has no area.
    pub(super) async fn find(
        target: &Target,
        limit: Duration,
    ) -> Result<Option<Self>, ScriptError> {
        let placements = target.owners.iter().map(|owner| placement(owner, limit));
        let placements: Option<Vec<_>> = try_join_all(placements).await?.into_iter().collect();
        let elements = target.owners.iter().chain([&target.element]);
        let sessions: Vec<_> = elements.map(|element| element.session.id()).collect();
        let mut roots = vec![0];
        for number in 1..sessions.len() {
            let is_root = sessions[number] != sessions[number - 1];
            roots.push(if is_root { number } else { roots[number - 1] });
        }
        Ok(placements.map(|placements| Self { placements, roots }))
    }

    /// Point of the page for a point in the local root of the innermost frame.
    pub(super) fn outward(&self, mut point: Point) -> Point {
        let mut root = self.roots[self.placements.len()];
        while root > 0 {
            point = self.placements[root - 1].outward(point);
            root = self.roots[root - 1];
        }
        point
    }

    /// Points in the viewports of all frames for a point of the page.
    pub(super) fn inward(&self, point: Point) -> Vec<Point> {
        let mut points = vec![point];
        for (parent, placement) in self.placements.iter().enumerate() {
            points.push(placement.inward(points[self.roots[parent]]));
        }
        points
    }
}

async fn placement(owner: &Element, limit: Duration) -> Result<Option<Placement>, ScriptError> {
    #[derive(Deserialize)]
    struct BoxModel {
        model: Model,
    }
    #[derive(Deserialize)]
    struct Model {
        content: [f64; 8],
    }
    let size = owner.call::<(f64, f64)>(limit, scripts::CONTENT_SIZE, &[]);
    let params = json!({"objectId": owner.object_id});
    let model = owner
        .session
        .call_within::<BoxModel>(limit, "DOM.getBoxModel", params);
    let (size, model) = tokio::join!(size, model);
    let (width, height) = size?;
    match model {
        Ok(answer) => Ok(Placement::new(
            Quad::from(answer.model.content),
            width,
            height,
        )),
        Err(error) => no_box(error),
    }
}

/// `None` for the error of an element that has no box.
pub(super) fn no_box<T>(error: CdpError) -> Result<Option<T>, ScriptError> {
    match error {
        CdpError::Protocol { message, .. } if message.starts_with("Could not compute") => Ok(None),
        error => Err(error.into()),
    }
}
