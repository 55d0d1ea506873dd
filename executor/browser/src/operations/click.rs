//! Clicks and hovering.

use super::aim::Aim;
use super::call_log::Words;
use super::element_call::ElementCall;
use super::geometry::Point;
use super::mouse::MouseEvent;
use super::page::Page;
use crate::error::StepError;
use crate::keys::{Key, Modifier, parse_combination};
use crate::program::{Click, Deferred};
use crate::tabs::ScriptError;

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
        let (call, mut target) = ElementCall::begin(self, bid, CLICK).await?;
        let click = click?;
        let before = self.navigations();
        let clicking = async |point| call.click_at(point, &click, count).await;
        let clicked = call.point(&mut target, CLICK_AIM, clicking).await;
        self.wait_for_navigations(&before).await;
        clicked.map(drop)
    }

    pub(super) async fn hover(&self, bid: &str) -> Result<(), StepError> {
        let (call, mut target) = ElementCall::begin(self, bid, HOVER).await?;
        let moving = async |point| {
            let events = [MouseEvent::moved(point, 0)];
            Ok(self.send_mouse(call.input_limit(), &events).await?)
        };
        call.point(&mut target, HOVER_AIM, moving).await.map(drop)
    }
}

impl ElementCall<'_> {
    async fn click_at(&self, point: Point, click: &Click, count: u8) -> Result<(), ScriptError> {
        let limit = self.input_limit();
        let keys = modifier_keys(&click.modifiers);
        let modifiers = keys.last().map_or(0, |key| key.modifiers);
        let mut events = vec![MouseEvent::moved(point, modifiers)];
        for number in 1..=count {
            let press = MouseEvent::pressed(point, click.button, modifiers, number);
            events.extend([press, press.released()]);
        }
        let page = self.page;
        let result = async {
            page.hold_keys(limit, &keys).await?;
            page.send_mouse(limit, &events).await
        };
        let result = result.await;
        let released = page.release_keys(limit, &keys).await;
        Ok(result.and(released)?)
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
