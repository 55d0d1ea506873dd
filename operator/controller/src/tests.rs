//! Fixtures of the unit tests: typical Sandboxes and what is built from them.

use std::sync::Arc;

use crds::int_or_string::IntOrString;
use crds::sandbox::{
    EnvVar, Phase, SandboxSpec, SandboxStatus, SecurityContext, Session, Workspace,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::json;

use crate::PeerClients;
use crate::config::{ControllerConfig, Deadlines};
use crate::context::Context;
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
        deleting: false,
        wake_at: None,
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

/// A minimal Sandbox.
pub(crate) fn plain() -> SandboxSpec {
    SandboxSpec {
        image: Some("debian:13".into()),
        command: Some(words("sleep infinity")),
        ..SandboxSpec::default()
    }
}

/// The Sandbox of a V0 client (`docs/specs/runtime-api.md`, section 1.4).
pub(crate) fn v0() -> SandboxSpec {
    SandboxSpec {
        image: Some("ghcr.io/openhands/runtime:0.62".into()),
        command: Some(words(
            "/openhands/micromamba/bin/micromamba run -n openhands poetry run python -u -m \
             openhands.runtime.action_execution_server 60000 --working-dir /workspace --plugins \
             agent_skills jupyter vscode --username openhands --user-id 1000 --no-enable-browser",
        )),
        working_dir: Some("/openhands/code/".into()),
        env: vec![EnvVar {
            name: "FROM_SECRET".into(),
            value: None,
            value_from: Some(json!({"secretKeyRef": {"name": "s", "key": "k"}})),
        }],
        resource_factor: Some(2.0),
        workspace: Some(Workspace {
            size: IntOrString::String("10Gi".into()),
            storage_class_name: Some("fast".into()),
            mount_path: None,
        }),
        session: Some(session()),
        ..SandboxSpec::default()
    }
}

/// The Sandbox of a V1 client (`docs/specs/runtime-api.md`, section 1.4).
pub(crate) fn v1() -> SandboxSpec {
    SandboxSpec {
        image: Some("ghcr.io/openhands/agent-server:latest".into()),
        command: Some(words("/usr/local/bin/openhands-agent-server --port 60000")),
        working_dir: Some("/workspace/project".into()),
        runtime_class_name: Some("sysbox".into()),
        security_context: Some(SecurityContext {
            run_as_user: Some(10001),
            run_as_group: Some(10001),
            fs_group: Some(10001),
        }),
        workspace: Some(Workspace {
            size: IntOrString::String("10Gi".into()),
            ..Workspace::default()
        }),
        session: Some(session()),
        ..SandboxSpec::default()
    }
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
