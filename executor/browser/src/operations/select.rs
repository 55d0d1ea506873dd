//! Choices in a select element.

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
        let (call, mut target) = ElementCall::begin(self, bid, SELECT).await?;
        let arguments = [json!(options?)];
        let selecting = call.run(&mut target, async |target, _| {
            let element = &target.element;
            call.script(element, scripts::SELECT_OPTIONS, &arguments)
                .await
        });
        selecting.await
    }
}
