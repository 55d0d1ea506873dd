//! Clicks and hovering. The events of a click are sent at once, so that a page that changes in
//! between does not turn it into something else.

use super::aim::Aim;
use super::call_log::Words;
use super::element_call::{ElementCall, TryError};
use super::geometry::Point;
use super::mouse::MouseEvent;
use super::page::Page;
use crate::cdp::CdpError;
use crate::error::StepError;
use crate::keys::{Key, Modifier, parse_combination};
use crate::program::{Click, Deferred};

const CLICK: Words = Words {
    method: "Locator.click",
    action: Some("click"),
    states: "visible, enabled and stable",
};
pub(super) const HOVER: Words = Words {
    method: "Locator.hover",
    action: Some("hover"),
    states: "visible and stable",
};
const CLICK_AIM: Aim = Aim {
    states: &["visible", "enabled"],
    events: &[
        "mousedown",
        "mouseup",
        "pointerdown",
        "pointerup",
        "click",
        "auxclick",
        "dblclick",
        "contextmenu",
    ],
};
pub(super) const HOVER_AIM: Aim = Aim {
    states: &["visible"],
    events: &["mousemove"],
};

impl Page {
    pub(super) async fn click(
        &self,
        bid: &str,
        click: Deferred<Click>,
        count: u8,
    ) -> Result<(), StepError> {
        let mut call = ElementCall::begin(self, bid, CLICK).await?;
        let click = click?;
        let before = self.navigations();
        let clicked = call.click(&click, count).await;
        self.wait_for_navigations(&before).await;
        clicked
    }

    pub(super) async fn hover(&self, bid: &str) -> Result<(), StepError> {
        let mut call = ElementCall::begin(self, bid, HOVER).await?;
        call.hover().await.map(drop)
    }
}

impl ElementCall<'_> {
    async fn click(&mut self, click: &Click, count: u8) -> Result<(), StepError> {
        loop {
            let result = self.try_click(click, count).await;
            if self.conclude(result).await?.is_some() {
                return Ok(());
            }
        }
    }

    async fn try_click(&self, click: &Click, count: u8) -> Result<Point, TryError> {
        let point = self.aim(CLICK_AIM).await?;
        let sent = self.click_at(point, click, count).await;
        self.release_pointer(point, sent).await
    }

    async fn click_at(&self, point: Point, click: &Click, count: u8) -> Result<(), CdpError> {
        let limit = self.limit();
        let keys = modifier_keys(&click.modifiers);
        let modifiers = keys.last().map_or(0, |key| key.modifiers);
        let mut events = vec![MouseEvent::moved(point, modifiers)];
        for number in 1..=count {
            let press = MouseEvent::pressed(point, click.button, modifiers, number);
            events.extend([press, press.released()]);
        }
        let mut result = self.page.hold_keys(limit, &keys).await;
        if result.is_ok() {
            result = self.page.send_mouse(limit, &events).await;
        }
        // Also after an error: the keys must not stay down.
        let released = self.page.release_modifiers(limit, &keys).await;
        result.and(released)
    }

    /// Moves the mouse to the element.
    pub(super) async fn hover(&mut self) -> Result<Point, StepError> {
        loop {
            let result = self.try_hover().await;
            if let Some(point) = self.conclude(result).await? {
                return Ok(point);
            }
        }
    }

    async fn try_hover(&self) -> Result<Point, TryError> {
        let point = self.aim(HOVER_AIM).await?;
        let events = [MouseEvent::moved(point, 0)];
        let sent = self.page.send_mouse(self.limit(), &events).await;
        self.release_pointer(point, sent).await
    }
}

/// Keys of modifiers, each once, in the order of the original.
fn modifier_keys(modifiers: &[Modifier]) -> Vec<Key> {
    let names = [
        (Modifier::Alt, "Alt"),
        (Modifier::Control, "Control"),
        (Modifier::Meta, "Meta"),
        (Modifier::Shift, "Shift"),
    ];
    let held = names
        .iter()
        .filter(|(modifier, _)| modifiers.contains(modifier));
    let names: Vec<_> = held.map(|(_, name)| *name).collect();
    parse_combination(&names.join("+")).unwrap_or_default()
}
