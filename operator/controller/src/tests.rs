//! Fixtures of the unit tests: typical Sandboxes and what is built from them.

use std::sync::Arc;

use crds::sandbox::{Phase, SandboxSpec, SandboxStatus, Session};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};

use crate::PeerClients;
use crate::config::{ControllerConfig, Deadlines};
use crate::context::Context;
use crate::pod_features::PodFeatures;
use crate::probes::supervisor_client::HttpSupervisors;
use crate::reconcile::build::pod::pod;
use crate::reconcile::build::{BuildContext, BuildError, PodParams};
use shared::clock::Clock;
use shared::index::{Entry, Index, Key};
use shared::keys::Keys;
use shared::traffic::NoGateways;
use shared::urls::{Scheme, UrlForm, Urls};

pub(crate) fn key(name: &str) -> Key {
    Key {
        namespace: "ns".into(),
        name: name.into(),
    }
}

/// A Sandbox in this phase.
pub(crate) fn entry_in(phase: Phase) -> Entry {
    let mut entry = entry(SandboxSpec::default());
    entry.status.phase = phase;
    entry
}

pub(crate) fn entry(spec: SandboxSpec) -> Entry {
    Entry {
        key: key("a"),
        uid: "uid".into(),
        resource_version: "1".into(),
        generation: 1,
        created_at: None,
        has_sealed_env: false,
        payload_bytes: 0,
        deleting: false,
        wake_at: None,
        trace: None,
        runtime_id: "abcdefghijklmnop".into(),
        spec: Arc::new(spec),
        status: SandboxStatus::default(),
    }
}

pub(crate) fn config() -> ControllerConfig {
    ControllerConfig::new(Urls {
        scheme: Scheme::Https,
        base: "rt.example.com".into(),
        form: UrlForm::Nested,
    })
}

pub(crate) fn keys() -> Keys {
    Keys::derive(&[1; 32]).unwrap()
}

pub(crate) fn build_context<'a>(
    entry: &'a Entry,
    config: &'a ControllerConfig,
    keys: &'a Keys,
) -> BuildContext<'a> {
    BuildContext {
        entry,
        config,
        keys,
        url: "https://abcdefghijklmnop.rt.example.com",
        deadlines: Deadlines::default(),
        level: entry.spec.persistence.unwrap_or_default(),
        pool: None,
        features: PodFeatures {
            injection: config.pods.injection,
            user_namespaces: config.pods.user_namespaces,
            root_persistence: config.persistence.root,
            ..PodFeatures::default()
        },
        source: None,
    }
}

/// Context of reconciles without supervisors and gateways.
pub(crate) fn context(client: Client, config: ControllerConfig, clock: Clock) -> Context {
    let keys = Arc::new(keys());
    let index = Arc::new(Index::new(keys.clone()));
    let peers = PeerClients {
        supervisors: Arc::new(HttpSupervisors::default()),
        gateways: Arc::new(NoGateways),
    };
    Context::new(client, config, keys, index, peers, clock, &Arc::default())
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// The spec with these fields.
fn spec(fields: Value) -> SandboxSpec {
    serde_json::from_value(fields).unwrap()
}

/// A minimal Sandbox.
pub(crate) fn plain() -> SandboxSpec {
    spec(json!({"image": "debian:13", "command": ["sleep", "infinity"]}))
}

/// The Sandbox of a V0 client (`docs/specs/runtime-api.md`, section 1.4).
pub(crate) fn v0() -> SandboxSpec {
    let command = words(
        "/openhands/micromamba/bin/micromamba run -n openhands poetry run python -u -m \
         openhands.runtime.action_execution_server 60000 --working-dir /workspace --plugins \
         agent_skills jupyter vscode --username openhands --user-id 1000 --no-enable-browser",
    );
    let reference = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    spec(json!({
        "image": "ghcr.io/openhands/runtime:0.62",
        "command": command,
        "workingDir": "/openhands/code/",
        "env": [{"name": "FROM_SECRET", "valueFrom": reference}],
        "resourceFactor": 2.0,
        "workspace": {"size": "10Gi", "storageClassName": "fast"},
        "session": session(),
    }))
}

/// The Sandbox of a V1 client (`docs/specs/runtime-api.md`, section 1.4).
pub(crate) fn v1() -> SandboxSpec {
    spec(json!({
        "image": "ghcr.io/openhands/agent-server:latest",
        "command": words("/usr/local/bin/openhands-agent-server --port 60000"),
        "workingDir": "/workspace/project",
        "runtimeClassName": "sysbox",
        "securityContext": {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001},
        "workspace": {"size": "10Gi"},
        "session": session(),
    }))
}

pub(crate) fn session() -> Session {
    Session {
        tenant: "default".into(),
        id: "s1".into(),
        ..Session::default()
    }
}

/// The Pod built from `spec` and `config`.
pub(crate) fn built(
    spec: SandboxSpec,
    config: &ControllerConfig,
    params: &PodParams<'_>,
) -> Result<Pod, BuildError> {
    pod(&build_context(&entry(spec), config, &keys()), params)
}
