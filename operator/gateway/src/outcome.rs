//! The outcome of a request as a label of metrics and of the access log. Proxy and API set it, the
//! access log reads it.

/// Outcome of a request, an extension of responses that the gateway makes.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutcomeTag(pub(super) &'static str);
