//! Sandboxes as their users ask for them.

use std::sync::Arc;

use crds::amount::IntOrString;
use crds::sandbox::{EnvVar, SandboxSpec, SandboxStatus, SecurityContext, Session, Workspace};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::controller::build::pod::{Order, pod};
use crate::controller::build::{Blueprint, BuildError};
use crate::controller::config::{ControllerConfig, Deadlines};
use crate::controller::init::Identity;
use crate::index::{Entry, Key};
use crate::keys::Keys;
use crate::urls::{Scheme, UrlForm, Urls};

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

pub(crate) fn identity<'a>(
    entry: &'a Entry,
    config: &'a ControllerConfig,
    keys: &'a Keys,
) -> Identity<'a> {
    Identity {
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

/// What `kubectl apply` of five lines asks for.
pub(crate) fn plain() -> SandboxSpec {
    SandboxSpec {
        image: Some("debian:13".into()),
        command: Some(words("sleep infinity")),
        ..SandboxSpec::default()
    }
}

/// What V0 clients of the runtime API ask for (runtime API spec 1.4).
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

/// What V1 clients ask for (runtime API spec 1.4).
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

/// The Pod that `config` makes of `spec`.
pub(crate) fn built(
    spec: SandboxSpec,
    config: &ControllerConfig,
    order: &Order<'_>,
) -> Result<Pod, BuildError> {
    let entry = entry(spec);
    let blueprint = Blueprint {
        entry: &entry,
        config,
        control_key: "public-key",
    };
    pod(&blueprint, order)
}
