//! Choices in a select element, which are set by script: the list that opens on a click is not
//! part of the page.

use serde_json::json;

use super::call_log::Words;
use super::element_call::ElementCall;
use super::page::Page;
use super::scripts;
use crate::error::StepError;
use crate::program::Deferred;

const SELECT: Words = Words {
    method: "Locator.select_option",
    action: Some("select option"),
    states: "visible and enabled",
};

impl Page {
    pub(super) async fn select(
        &self,
        bid: &str,
        options: Deferred<Vec<String>>,
    ) -> Result<(), StepError> {
        let mut call = ElementCall::begin(self, bid, SELECT).await?;
        let arguments = [json!(options?)];
        loop {
            let result = call.try_script(scripts::SELECT_OPTIONS, &arguments).await;
            if let Some(()) = call.conclude(result).await? {
                return Ok(());
            }
        }
    }
}
