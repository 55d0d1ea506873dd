//! What is built, in full, and that no secret is in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::sandbox::{
    EnvVar, Port, SandboxSpec, SandboxStatus, SecurityContext, Session, Workspace,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::*;
use crate::controller::config::Deadlines;
use crate::controller::init::{Identity, init};
use crate::index::Key;
use crate::keys::Keys;
use crate::urls::{Scheme, UrlForm, Urls};

fn entry(spec: SandboxSpec) -> Entry {
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

fn config() -> ControllerConfig {
    ControllerConfig::new(Urls {
        scheme: Scheme::Https,
        base: "rt.example.com".into(),
        form: UrlForm::Nested,
    })
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// What `kubectl apply` of five lines asks for.
fn plain() -> SandboxSpec {
    SandboxSpec {
        image: Some("debian:13".into()),
        command: Some(words("sleep infinity")),
        ..SandboxSpec::default()
    }
}

/// What the runtime API asks for.
fn session() -> SandboxSpec {
    SandboxSpec {
        image: Some("ghcr.io/openhands/runtime:0.62".into()),
        command: Some(words(
            "python -u -m openhands.runtime.action_execution_server 60000",
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
        session: Some(Session {
            tenant: "default".into(),
            id: "s1".into(),
            ..Session::default()
        }),
        ..SandboxSpec::default()
    }
}

fn build(spec: SandboxSpec, restarts: u32) -> Result<k8s_openapi::api::core::v1::Pod, BuildError> {
    let (entry, config) = (entry(spec), config());
    let blueprint = Blueprint {
        entry: &entry,
        config: &config,
        control_key: "public-key",
    };
    pod::pod(&blueprint, restarts)
}

#[test]
fn pod_of_five_lines() {
    insta::assert_yaml_snapshot!(build(plain(), 0).unwrap());
}

#[test]
fn pod_of_a_session() {
    insta::assert_yaml_snapshot!(build(session(), 2).unwrap());
}

#[test]
fn pod_of_an_image_entrypoint_with_a_user() {
    let spec = SandboxSpec {
        image: Some("nginx".into()),
        working_dir: Some("/srv".into()),
        ports: vec![Port {
            name: "web".into(),
            port: 8080,
        }],
        security_context: Some(SecurityContext {
            run_as_user: Some(10001),
            ..SecurityContext::default()
        }),
        ..SandboxSpec::default()
    };
    insta::assert_yaml_snapshot!(build(spec, 0).unwrap());
}

#[test]
fn claim_of_a_workspace() {
    let (entry, config) = (entry(session()), config());
    let blueprint = Blueprint {
        entry: &entry,
        config: &config,
        control_key: "public-key",
    };
    insta::assert_yaml_snapshot!(claim::claim(&blueprint).unwrap());
}

#[test]
fn a_template_changes_the_pod() {
    let spec = SandboxSpec {
        pod_template: Some(json!({"spec": {
            "nodeSelector": {"pool": "sandboxes"},
            "containers": [{"name": "sandbox", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}],
            "volumes": [{"name": "cache", "emptyDir": {}}]
        }})),
        ..plain()
    };
    let pod = build(spec, 0).unwrap().spec.unwrap();
    assert_eq!(pod.volumes.unwrap().len(), 4);
    assert_eq!(pod.containers[0].volume_mounts.as_ref().unwrap().len(), 4);
    assert!(pod.node_selector.is_some());
}

#[test]
fn faults_name_their_place() {
    let mut spec = session();
    spec.env[0].value_from = Some(json!({"secretKeyRef": 3}));
    let fault = build(spec, 0).unwrap_err().to_string();
    assert!(fault.starts_with("spec.env[0].valueFrom: "), "{fault}");
    let nothing = SandboxSpec::default();
    assert_eq!(
        build(nothing, 0).unwrap_err().to_string(),
        "spec.image is missing"
    );
}

#[test]
fn no_secret_stands_in_a_pod() {
    let keys = Keys::derive(&[1; 32]).unwrap();
    let client = BTreeMap::from([("LLM_API_KEY".to_owned(), "hunter2".to_owned())]);
    let spec = SandboxSpec {
        sealed_env: Some(keys.seal("ns", "a", &client).unwrap()),
        ..session()
    };
    let pod = serde_json::to_string(&build(spec.clone(), 0).unwrap()).unwrap();
    let (entry, config) = (entry(spec), config());
    let identity = Identity {
        entry: &entry,
        config: &config,
        keys: &keys,
        url: "https://abcdefghijklmnop.rt.example.com",
        deadlines: Deadlines::default(),
    };
    let init = init(&identity).unwrap();
    let secrets = ["LLM_API_KEY", "SESSION_API_KEY", "OH_SECRET_KEY"];
    for name in secrets {
        let secret = &init.environment[name];
        assert!(
            !secret.is_empty() && !pod.contains(secret.as_str()),
            "{name}"
        );
    }
    assert!(!pod.contains("LLM_API_KEY"));
}
