//! A span that is recorded.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::trace::{Span as _, Status};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::Span as SdkSpan;

use super::TraceParent;

/// Recorded span; ends when it is dropped. Attributes must not hold personal data or secrets.
#[derive(Debug)]
pub struct Span(Box<SdkSpan>);

impl Span {
    pub(super) fn new(span: SdkSpan) -> Self {
        Self(Box::new(span))
    }

    /// Identity of the span, as parent of others.
    pub fn as_parent(&self) -> TraceParent {
        let context = self.0.span_context();
        TraceParent {
            trace_id: context.trace_id(),
            span_id: context.span_id(),
            flags: context.trace_flags(),
        }
    }

    pub fn set(&mut self, attribute: &'static str, value: impl Into<Value>) {
        self.0.set_attribute(KeyValue::new(attribute, value));
    }

    pub fn rename(&mut self, name: impl Into<Cow<'static, str>>) {
        self.0.update_name(name);
    }

    /// Marks the span as failed, with the category of the error.
    pub fn fail(&mut self, category: &'static str) {
        self.set("error.type", category);
        self.0.set_status(Status::error(category));
    }

    /// Ends the span at an earlier time.
    pub fn end_at(mut self, end: Timestamp) {
        self.0.end_with_timestamp(SystemTime::from(end));
    }
}
