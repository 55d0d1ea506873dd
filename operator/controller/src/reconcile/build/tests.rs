//! Snapshots of built objects, and errors of specs that cannot be built.

pub(crate) mod fixtures;
mod operator_settings;

use std::collections::BTreeMap;

use crds::contract::identity::IdentityKey;
use crds::int_or_string::IntOrString;
use crds::sandbox::{EnvVar, Port, SandboxSpec, SecurityContext};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::json;

use super::*;
use crate::reconcile::init_message;
use fixtures::{built, config, entry, init_context, keys, plain, session, v0, v1};

fn build(spec: SandboxSpec) -> Result<Pod, BuildError> {
    built(spec, &config(), &PodParams::default())
}

fn fault(spec: SandboxSpec) -> String {
    build(spec).unwrap_err().to_string()
}

/// The environment Secret of a sandbox.
fn secret_of(spec: &SandboxSpec) -> Result<Secret, BuildError> {
    let (entry, config) = (entry(spec.clone()), config());
    let context = BuildContext {
        entry: &entry,
        config: &config,
        control_key: "public-key",
        identity: IdentityKey::new([7; 32]),
    };
    environment_secret::secret(&context, environment_of(spec))
}

fn environment_of(spec: &SandboxSpec) -> init_message::Environment {
    let (entry, config, keys) = (entry(spec.clone()), config(), keys());
    init_message::environment(&init_context(&entry, &config, &keys)).unwrap()
}

#[test]
fn pod_of_minimal_sandbox() {
    insta::assert_yaml_snapshot!(build(plain()).unwrap());
}

#[test]
fn pod_of_a_v0_session() {
    let params = PodParams {
        restarts: 2,
        ..PodParams::default()
    };
    insta::assert_yaml_snapshot!(built(v0(), &config(), &params).unwrap());
}

#[test]
fn pod_of_a_v1_session() {
    insta::assert_yaml_snapshot!(build(v1()).unwrap());
}

#[test]
fn pod_of_a_v1_session_without_command() {
    let spec = SandboxSpec {
        command: None,
        ..v1()
    };
    let secret = secret_of(&spec).unwrap();
    let params = PodParams {
        secret: Some(&secret),
        ..PodParams::default()
    };
    insta::assert_yaml_snapshot!(built(spec, &config(), &params).unwrap());
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
    insta::assert_yaml_snapshot!(build(spec).unwrap());
}

#[test]
fn claim_of_a_workspace() {
    let (entry, config) = (entry(v0()), config());
    let context = BuildContext {
        entry: &entry,
        config: &config,
        control_key: "public-key",
        identity: IdentityKey::new([7; 32]),
    };
    insta::assert_yaml_snapshot!(workspace_claim::claim(&context).unwrap());
}

#[test]
fn invalid_workspace_size_is_rejected() {
    for size in ["", "much", "-1Gi", "0"] {
        let mut spec = v0();
        spec.workspace.as_mut().unwrap().size = IntOrString::String(size.into());
        let (entry, config) = (entry(spec), config());
        let context = BuildContext {
            entry: &entry,
            config: &config,
            control_key: "public-key",
            identity: IdentityKey::new([7; 32]),
        };
        let fault = workspace_claim::claim(&context).unwrap_err().to_string();
        assert!(fault.starts_with("spec.workspace.size: "), "{fault}");
    }
}

#[test]
fn pod_template_is_merged_into_pod() {
    let spec = SandboxSpec {
        pod_template: Some(json!({"spec": {
            "nodeSelector": {"pool": "sandboxes"},
            "containers": [{"name": "sandbox", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}],
            "volumes": [{"name": "cache", "emptyDir": {}}]
        }})),
        ..plain()
    };
    let pod = build(spec).unwrap().spec.unwrap();
    assert_eq!(pod.volumes.unwrap().len(), 4);
    assert_eq!(pod.containers[0].volume_mounts.as_ref().unwrap().len(), 4);
    assert!(pod.node_selector.is_some());
}

#[test]
fn privileged_template_requires_setting() {
    let spec = SandboxSpec {
        pod_template: Some(json!({"spec": {"hostNetwork": true}})),
        ..plain()
    };
    let error = fault(spec.clone());
    assert!(
        error.starts_with("spec.podTemplate: hostNetwork"),
        "{error}"
    );
    let mut config = config();
    config.pods.privileged_templates = true;
    let pod = built(spec, &config, &PodParams::default()).unwrap();
    assert_eq!(pod.spec.unwrap().host_network, Some(true));
}

#[test]
fn pull_policy_is_unset_by_default() {
    let policy = |spec| {
        let spec = build(spec).unwrap().spec.unwrap();
        spec.containers[0].image_pull_policy.clone()
    };
    assert_eq!(policy(v1()), None);
    let spec = SandboxSpec {
        image_pull_policy: Some(crds::sandbox::PullPolicy::Never),
        ..v1()
    };
    assert_eq!(policy(spec).as_deref(), Some("Never"));
}

#[test]
fn errors_name_path_of_field() {
    let mut spec = v0();
    spec.env[0].value_from = Some(json!({"secretKeyRef": 3}));
    let found = fault(spec);
    assert!(
        found.starts_with("spec.env[0].valueFrom.secretKeyRef: "),
        "{found}"
    );
    assert_eq!(fault(SandboxSpec::default()), "spec.image is missing");
    let mut spec = plain();
    spec.env = vec![EnvVar {
        name: "SANDBOX_CONTROL_KEY".into(),
        ..EnvVar::default()
    }];
    assert!(fault(spec).starts_with("spec.env[0].name: "));
    let mut spec = plain();
    spec.ports = vec![Port {
        name: "control".into(),
        port: crds::contract::CONTROL_PORT,
    }];
    assert!(fault(spec.clone()).starts_with("spec.ports[0].port: "));
    spec.command = None;
    assert!(build(spec).is_ok());
}

#[test]
fn pod_contains_no_secret() {
    let client = BTreeMap::from([("LLM_API_KEY".to_owned(), "hunter2".to_owned())]);
    for command in [v0().command, None] {
        let spec = SandboxSpec {
            command,
            sealed_env: Some(keys().seal("ns", "a", &client).unwrap()),
            ..v0()
        };
        let secret = secret_of(&spec).unwrap();
        let params = PodParams {
            secret: Some(&secret).filter(|_| spec.command.is_none()),
            ..PodParams::default()
        };
        let pod = built(spec.clone(), &config(), &params).unwrap();
        let pod = serde_json::to_string(&pod).unwrap();
        let data = secret.data.unwrap();
        for name in ["LLM_API_KEY", "SESSION_API_KEY", "OH_SECRET_KEY"] {
            let value = String::from_utf8(data[name].0.clone()).unwrap();
            assert!(!value.is_empty() && !pod.contains(&value), "{name}");
        }
        assert!(!pod.contains("LLM_API_KEY"));
    }
}

#[test]
fn environment_secret_wins_over_container_variables() {
    let variable = |name: &str| json!({"name": name, "value": "mine"});
    let spec = SandboxSpec {
        image: Some("agent-server".into()),
        env: serde_json::from_value(json!([variable("SESSION_API_KEY"), variable("A")])).unwrap(),
        pod_template: Some(json!({"spec": {"containers": [
            {"name": "sandbox", "env": [variable("RUNTIME_ID"), variable("B")]}
        ]}})),
        session: Some(session()),
        ..SandboxSpec::default()
    };
    let secret = secret_of(&spec).unwrap();
    let params = PodParams {
        secret: Some(&secret),
        ..PodParams::default()
    };
    let pod = built(spec, &config(), &params).unwrap();
    let own = pod.spec.unwrap().containers[0].env.clone().unwrap();
    let names: Vec<_> = own.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["A", "B"]);
}

#[test]
fn variable_that_secret_cannot_hold_is_rejected() {
    let client = BTreeMap::from([("A B".to_owned(), "1".to_owned())]);
    let spec = SandboxSpec {
        command: None,
        sealed_env: Some(keys().seal("ns", "a", &client).unwrap()),
        ..v1()
    };
    let fault = secret_of(&spec).unwrap_err().to_string();
    assert!(
        fault.starts_with("spec.sealedEnv: the variable \"A B\""),
        "{fault}"
    );
}
