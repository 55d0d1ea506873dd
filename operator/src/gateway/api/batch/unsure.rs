//! The entry of a session of which nobody can say at present whether it has a runtime. A word for
//! `status` that is none of the known ones is to the newest client what it says (runtime API spec
//! 3.8); types and nulls are such that no client fails (1.3).

use std::collections::BTreeMap;

use crds::sandbox::PodStatus;
use schemars::JsonSchema;
use serde::Serialize;

/// Says of a session that nothing is known of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct UnsureRuntime {
    runtime_id: Option<String>,
    session_id: String,
    url: Option<String>,
    session_api_key: Option<String>,
    status: Word,
    pod_status: PodStatus,
    status_detail: &'static str,
    work_hosts: BTreeMap<String, u16>,
    restart_count: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Word {
    Unknown,
}

impl UnsureRuntime {
    pub(super) fn of(session: &str) -> Self {
        Self {
            runtime_id: None,
            session_id: session.to_owned(),
            url: None,
            session_api_key: None,
            status: Word::Unknown,
            // The only one that leaves every client to `status`.
            pod_status: PodStatus::NotFound,
            status_detail: "the Kubernetes API cannot be asked for this at present",
            work_hosts: BTreeMap::new(),
            restart_count: 0,
        }
    }
}
