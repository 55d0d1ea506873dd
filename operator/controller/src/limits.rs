//! Limits of reconciles: quota of API keys, replacement backoff of lost Pods, and the filter of
//! self-updates.

pub(crate) mod quota;
pub(crate) mod replacement_backoff;
pub(crate) mod self_update_filter;
