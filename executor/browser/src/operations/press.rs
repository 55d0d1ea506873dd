//! Focus, and keys for the element that has it.

use serde_json::{Value, json};

use super::call_log::Words;
use super::element_call::{ElementCall, Reply};
use super::locate::Target;
use super::page::Page;
use super::scripts;
use crate::error::StepError;
use crate::keys::parse_combination;
use crate::program::Deferred;
use crate::tabs::ScriptError;

const PRESS: Words = Words {
    method: "Locator.press",
    action: None,
    states: "",
};
const FOCUS: Words = Words {
    method: "Locator.focus",
    ..PRESS
};

impl Page {
    pub(super) async fn focus(&self, bid: &str) -> Result<(), StepError> {
        let (call, mut target) = ElementCall::begin(self, bid, FOCUS).await?;
        let focusing = call.run(&mut target, async |target, _| {
            call.focus_element(target, false).await
        });
        focusing.await
    }

    pub(super) async fn press(
        &self,
        bid: &str,
        combination: Deferred<String>,
    ) -> Result<(), StepError> {
        let (call, mut target) = ElementCall::begin(self, bid, PRESS).await?;
        let combination = combination?;
        let call = call.with_note(format!("  - elementHandle.press(\"{combination}\")"));
        let keys = parse_combination(&combination);
        let before = self.navigations();
        let pressing = call.run(&mut target, async |target, _| {
            let focused = call.focus_element(target, true).await?;
            if !matches!(focused, Reply::Done(())) {
                return Ok(focused);
            }
            match &keys {
                Ok(keys) => self.press_keys(call.input_limit(), keys).await?,
                Err(error) => return Ok(Reply::Refuse(error.to_string())),
            }
            call.settle(target).await;
            Ok(focused)
        });
        let pressed = pressing.await;
        self.wait_for_navigations(&before).await;
        pressed
    }
}

impl ElementCall<'_> {
    pub(super) async fn focus_element(
        &self,
        target: &Target,
        is_for_keys: bool,
    ) -> Result<Reply<()>, ScriptError> {
        let arguments = [json!(is_for_keys)];
        self.script(&target.element, scripts::FOCUS, &arguments)
            .await
    }

    /// Lets tasks run that input has caused, such as the submission of a form.
    async fn settle(&self, target: &Target) {
        let settling = self.script::<Value>(&target.element, scripts::SETTLE, &[]);
        // Without an answer, the document is being replaced.
        let _ = settling.await;
    }
}
