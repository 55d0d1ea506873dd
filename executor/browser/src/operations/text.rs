//! Filling of fields. A text replaces the old one as a single edit, as if it was pasted; fields
//! that have no text, such as dates, are set by script.

use serde_json::json;

use super::call_log::Words;
use super::element_call::{ElementCall, TryError};
use super::page::Page;
use super::scripts;
use crate::error::StepError;
use crate::keys::parse_combination;
use crate::program::Deferred;

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
        let call = ElementCall::begin(self, bid, words).await?;
        let value = value?;
        if !offers_completions {
            return call.replace_text(&value).await;
        }
        call.replace_text("").await?;
        let Some((start, _)) = value.char_indices().next_back() else {
            return Ok(());
        };
        let (text, last) = value.split_at(start);
        if !text.is_empty() {
            let call = ElementCall::begin(self, bid, FILL).await?;
            call.replace_text(text).await?;
        }
        let call = ElementCall::begin(self, bid, TYPE).await?;
        call.type_character(last).await
    }

    pub(super) async fn clear(&self, bid: &str) -> Result<(), StepError> {
        let call = ElementCall::begin(self, bid, CLEAR).await?;
        call.replace_text("").await
    }
}

impl ElementCall<'_> {
    async fn replace_text(self, text: &str) -> Result<(), StepError> {
        let mut call = self.with_note(format!("    - fill(\"{text}\")"));
        loop {
            let result = call.try_replace_text(text).await;
            if let Some(()) = call.conclude(result).await? {
                return Ok(());
            }
        }
    }

    async fn try_replace_text(&self, text: &str) -> Result<(), TryError> {
        let needs_text: bool = self.try_script(scripts::FILL, &[json!(text)]).await?;
        if needs_text && text.is_empty() {
            let delete = parse_combination("Delete").unwrap_or_default();
            self.page.press_keys(self.limit(), &delete).await?;
        } else if needs_text {
            self.page.insert_text(self.limit(), text).await?;
        }
        Ok(())
    }

    async fn type_character(mut self, character: &str) -> Result<(), StepError> {
        loop {
            let result = self.try_type_character(character).await;
            if let Some(()) = self.conclude(result).await? {
                return Ok(());
            }
        }
    }

    /// Types a character, which need not be on the keyboard.
    async fn try_type_character(&self, character: &str) -> Result<(), TryError> {
        self.focus(true).await?;
        match parse_combination(character) {
            Ok(keys) => self.page.press_keys(self.limit(), &keys).await?,
            Err(_) => self.page.insert_text(self.limit(), character).await?,
        }
        Ok(())
    }
}
