//! Focus, and keys for the element that has it. Unlike for the pointer, an element need not be
//! visible: one that cannot have the focus is passed over, and the page gets the keys.

use serde_json::{Value, json};

use super::call_log::Words;
use super::element_call::{ElementCall, TryError};
use super::page::Page;
use super::scripts;
use crate::error::StepError;
use crate::keys::parse_combination;
use crate::program::Deferred;

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
        let mut call = ElementCall::begin(self, bid, FOCUS).await?;
        loop {
            let result = call.focus(false).await;
            if let Some(()) = call.conclude(result).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn press(
        &self,
        bid: &str,
        combination: Deferred<String>,
    ) -> Result<(), StepError> {
        let call = ElementCall::begin(self, bid, PRESS).await?;
        let combination = combination?;
        let note = format!("  - elementHandle.press(\"{combination}\")");
        let before = self.navigations();
        let pressed = call.with_note(note).press(&combination).await;
        self.wait_for_navigations(&before).await;
        pressed
    }
}

impl ElementCall<'_> {
    /// Gives the element the focus.
    pub(super) async fn focus(&self, is_for_keys: bool) -> Result<(), TryError> {
        self.try_script(scripts::FOCUS, &[json!(is_for_keys)]).await
    }

    async fn press(mut self, combination: &str) -> Result<(), StepError> {
        loop {
            let result = self.try_press(combination).await;
            if let Some(()) = self.conclude(result).await? {
                return Ok(());
            }
        }
    }

    async fn try_press(&self, combination: &str) -> Result<(), TryError> {
        self.focus(true).await?;
        let keys = parse_combination(combination);
        let keys = keys.map_err(|error| TryError::Refuse(error.to_string()))?;
        self.page.press_keys(self.limit(), &keys).await?;
        // Lets tasks run that the keys have caused, such as the submission of a form. Without an
        // answer, the document is being replaced.
        let element = &self.target.element;
        let _ = element
            .call::<Value>(self.limit(), scripts::SETTLE, &[])
            .await;
        Ok(())
    }
}
