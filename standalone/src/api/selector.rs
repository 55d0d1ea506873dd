//! Label and field selectors of lists, watches and delete collections.

mod field;
mod label;

use serde_json::Value;

use self::{field::FieldSelector, label::LabelSelector};
use super::error::ApiError;

/// Label and field selector of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selector {
    pub(crate) fn parse(labels: Option<&str>, fields: Option<&str>) -> Result<Self, ApiError> {
        Ok(Self {
            labels: LabelSelector::parse(labels.unwrap_or_default())?,
            fields: FieldSelector::parse(fields.unwrap_or_default())?,
        })
    }

    /// Rejects fields that the kind cannot be selected by.
    pub(crate) fn check_fields(&self, selectable: &[String]) -> Result<(), ApiError> {
        self.fields.check(selectable)
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.matches(&object["metadata"]["labels"]) && self.fields.matches(object)
    }
}
