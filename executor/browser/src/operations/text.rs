//! Filling of fields.

use serde_json::json;

use super::call_log::Words;
use super::element_call::{ElementCall, Reply};
use super::locate::Target;
use super::page::Page;
use super::scripts;
use crate::error::StepError;
use crate::keys::parse_combination;
use crate::program::Deferred;
use crate::tabs::ScriptError;

const FILL: Words = Words {
    method: "Locator.fill",
    action: Some("fill"),
    states: "visible, enabled and editable",
};
const CLEAR: Words = Words {
    method: "Locator.clear",
    ..FILL
};
const TYPE: Words = Words {
    method: "Locator.type",
    action: None,
    states: "",
};

impl Page {
    /// Fills a field. With `offers_completions`, the last character is typed as a key.
    pub(super) async fn fill(
        &self,
        bid: &str,
        value: Deferred<String>,
        offers_completions: bool,
    ) -> Result<(), StepError> {
        let words = if offers_completions { CLEAR } else { FILL };
        let (call, mut target) = ElementCall::begin(self, bid, words).await?;
        let value = value?;
        if !offers_completions {
            return call.replace_text(&mut target, &value).await;
        }
        call.replace_text(&mut target, "").await?;
        let Some((start, _)) = value.char_indices().next_back() else {
            return Ok(());
        };
        let (text, last) = value.split_at(start);
        if !text.is_empty() {
            let (call, mut target) = ElementCall::begin(self, bid, FILL).await?;
            call.replace_text(&mut target, text).await?;
        }
        let (call, mut target) = ElementCall::begin(self, bid, TYPE).await?;
        call.type_character(&mut target, last).await
    }

    pub(super) async fn clear(&self, bid: &str) -> Result<(), StepError> {
        let (call, mut target) = ElementCall::begin(self, bid, CLEAR).await?;
        call.replace_text(&mut target, "").await
    }
}

impl ElementCall<'_> {
    async fn replace_text(self, target: &mut Target, text: &str) -> Result<(), StepError> {
        let call = self.with_note(format!("    - fill(\"{text}\")"));
        let filling = call.run(target, async |target, _| {
            let arguments = [json!(text)];
            let selecting = call.script(&target.element, scripts::FILL, &arguments);
            let needs_text = match selecting.await? {
                Reply::Done(needs_text) => needs_text,
                failure => return Ok(failure.map(|_: bool| ())),
            };
            let limit = call.input_limit();
            if needs_text && text.is_empty() {
                let delete = parse_combination("Delete").unwrap_or_default();
                call.page.press_keys(limit, &delete).await?;
            } else if needs_text {
                call.page.insert_text(limit, text).await?;
            }
            Ok(Reply::Done(()))
        });
        filling.await
    }

    /// Types a character, which need not be on the keyboard.
    async fn type_character(&self, target: &mut Target, character: &str) -> Result<(), StepError> {
        let typing = self.run(target, async |target, _| {
            let focused = self.focus_element(target, true).await?;
            if matches!(focused, Reply::Done(())) {
                let limit = self.input_limit();
                match parse_combination(character) {
                    Ok(keys) => self.page.press_keys(limit, &keys).await?,
                    Err(_) => self.page.insert_text(limit, character).await?,
                }
            }
            Ok::<_, ScriptError>(focused)
        });
        typing.await
    }
}
