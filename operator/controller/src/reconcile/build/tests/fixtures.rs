//! Typical Sandbox specs and the Pods built from them.

use std::sync::Arc;

use crds::contract::identity::IdentityKey;
use crds::int_or_string::IntOrString;
use crds::sandbox::{EnvVar, SandboxSpec, SandboxStatus, SecurityContext, Session, Workspace};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::config::{ControllerConfig, Deadlines};
use crate::reconcile::build::pod::pod;
use crate::reconcile::build::{BuildContext, BuildError, PodParams};
use crate::reconcile::init_message::InitContext;
use shared::index::{Entry, Key};
use shared::keys::Keys;
use shared::urls::{Scheme, UrlForm, Urls};

pub(crate) fn entry(spec: SandboxSpec) -> Entry {
    Entry {
        key: Key {
            namespace: "ns".into(),
            name: "a".into(),
        },
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

pub(crate) fn init_context<'a>(
    entry: &'a Entry,
    config: &'a ControllerConfig,
    keys: &'a Keys,
) -> InitContext<'a> {
    InitContext {
        entry,
        config,
        keys,
        url: "https://abcdefghijklmnop.rt.example.com",
        deadlines: Deadlines::default(),
        key_rotation: 0,
    }
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
    let entry = entry(spec);
    let context = BuildContext {
        entry: &entry,
        config,
        control_key: "public-key",
        identity: IdentityKey::new([7; 32]),
    };
    pod(&context, params)
}
