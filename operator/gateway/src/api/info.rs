//! `RuntimeInfo`, the object that most endpoints return (`docs/specs/runtime-api.md`, section 1.3).
//!
//! It is always complete: different clients read different fields of it.

mod failure_details;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crds::sandbox::PodStatus;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Api;
use crate::runtime_status::{RuntimeStatus, derive};
use shared::index::Entry;
use shared::urls::Urls;

/// Ports whose URLs are in `work_hosts`.
const WORK_PORTS: [&str; 2] = ["work-1", "work-2"];

/// A sandbox as clients see it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RuntimeInfo {
    pub runtime_id: String,
    pub session_id: String,
    /// URL of the sandbox server, without a trailing slash; it never changes.
    pub url: String,
    pub session_api_key: String,
    pub status: RuntimeStatus,
    pub pod_status: PodStatus,
    pub status_detail: Option<String>,
    /// URLs of applications in the sandbox, with their port.
    pub work_hosts: BTreeMap<String, u16>,
    pub restart_count: u32,
    pub restart_reasons: Vec<String>,
    pub container_statuses: Vec<Value>,
    pub events: Vec<Value>,
    pub pod_logs: String,
    pub command: Option<EchoedCommand>,
    pub image: Option<String>,
    pub working_dir: Option<String>,
    pub resource_factor: f64,
    pub runtime_class: Option<String>,
    #[schemars(with = "Option<String>")]
    pub created_at: Option<Timestamp>,
}

/// Command in the shape in which the client sent it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum EchoedCommand {
    Line(String),
    Words(Vec<String>),
}

impl Api {
    /// Describes a sandbox. `None` for one without a session, which the API does not show.
    pub(super) fn info(&self, entry: &Entry) -> Option<RuntimeInfo> {
        let spec = &entry.spec;
        let session = entry.session()?;
        let id = &entry.runtime_id;
        let state = derive(entry);
        Some(RuntimeInfo {
            runtime_id: id.clone(),
            session_id: session.id.clone(),
            url: self.urls(entry).runtime(id),
            session_api_key: self.session_key(entry),
            status: state.lifecycle,
            pod_status: state.pod,
            status_detail: state.detail,
            work_hosts: self.work_hosts(entry),
            restart_count: entry.status.restarts.count,
            restart_reasons: entry.status.restarts.reasons.clone(),
            container_statuses: failure_details::container_statuses(entry, state.lifecycle),
            events: failure_details::events(entry, state.lifecycle),
            pod_logs: failure_details::pod_logs(entry, state.lifecycle, &self.sandboxes.keys),
            command: command(entry),
            image: spec.image.clone(),
            working_dir: spec.working_dir.clone(),
            resource_factor: spec.resource_factor.unwrap_or(1.0),
            runtime_class: spec.runtime_class_name.clone(),
            created_at: entry.created_at,
        })
    }

    /// Returns the session key of the present Pod, or of the last one.
    fn session_key(&self, entry: &Entry) -> String {
        let rotation = entry.status.key_rotation.unwrap_or(0);
        self.sandboxes
            .keys
            .rotated_session_key(&entry.uid, rotation)
    }

    /// Returns the URLs in the form that is set for the owner.
    fn urls(&self, entry: &Entry) -> Cow<'_, Urls> {
        let tenant = entry.session().map_or("", |s| s.tenant.as_str());
        self.tenants.urls(&self.config.urls, tenant)
    }

    fn work_hosts(&self, entry: &Entry) -> BTreeMap<String, u16> {
        let urls = self.urls(entry);
        WORK_PORTS
            .iter()
            .filter_map(|name| Some((urls.port(&entry.runtime_id, name), entry.port(name)?)))
            .collect()
    }
}

fn command(entry: &Entry) -> Option<EchoedCommand> {
    let line = entry.session()?.command_line.clone();
    let words = || entry.spec.command.clone().map(EchoedCommand::Words);
    line.map(EchoedCommand::Line).or_else(words)
}
