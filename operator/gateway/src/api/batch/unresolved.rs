//! Batch entry of a session whose state is unknown at present. The newest clients show an unknown
//! `status` as such (`docs/specs/runtime-api.md`, section 3.8); types and nulls are those that all
//! clients accept.

use std::collections::BTreeMap;

use crds::sandbox::PodStatus;
use schemars::JsonSchema;
use serde::Serialize;

/// Runtime whose state is unknown.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct UnresolvedRuntime {
    runtime_id: Option<String>,
    session_id: String,
    url: Option<String>,
    session_api_key: Option<String>,
    status: UnknownStatus,
    pod_status: PodStatus,
    status_detail: &'static str,
    work_hosts: BTreeMap<String, u16>,
    restart_count: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum UnknownStatus {
    Unknown,
}

impl UnresolvedRuntime {
    pub(super) fn new(session: &str) -> Self {
        Self {
            runtime_id: None,
            session_id: session.to_owned(),
            url: None,
            session_api_key: None,
            status: UnknownStatus::Unknown,
            // With this value, every client goes by `status`.
            pod_status: PodStatus::NotFound,
            status_detail: "the Kubernetes API is not available for this lookup",
            work_hosts: BTreeMap::new(),
            restart_count: 0,
        }
    }
}
