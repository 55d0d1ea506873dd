//! Precedence of variables and limits of the initialization.

use std::collections::BTreeMap;

use crds::sandbox::{EnvVar, SandboxSpec};

use super::*;
use crate::tests::{build_context, config, entry, keys, plain, v0, v1};
use crds::contract::token;
use shared::urls::UrlForm;

fn sealed(spec: SandboxSpec, client: &[(&str, &str)]) -> SandboxSpec {
    let client = client
        .iter()
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    let client: BTreeMap<_, _> = client.collect();
    SandboxSpec {
        sealed_env: Some(keys().seal("ns", "a", &client).unwrap()),
        ..spec
    }
}

/// The spec with so many variables of 100 KiB.
fn with_large_variables(count: u32) -> SandboxSpec {
    let part = "x".repeat(100 * 1024);
    let names: Vec<_> = (0..count).map(|n| format!("V{n}")).collect();
    let all: Vec<_> = names.iter().map(|n| (n.as_str(), part.as_str())).collect();
    sealed(v1(), &all)
}

fn init_of(spec: SandboxSpec) -> Init {
    let target = InitTarget::default();
    init(&build_context(&entry(spec), &config(), &keys()), target).unwrap()
}

fn rotated(spec: SandboxSpec, key_rotation: u32) -> Environment {
    environment(
        &build_context(&entry(spec), &config(), &keys()),
        key_rotation,
    )
    .unwrap()
}

#[test]
fn init_of_a_v0_session() {
    insta::assert_yaml_snapshot!(init_of(v0()));
}

#[test]
fn init_of_a_v1_session() {
    insta::assert_yaml_snapshot!(init_of(v1()));
}

#[test]
fn init_message_of_minimal_sandbox() {
    let init = init_of(plain());
    assert_eq!(init.command, ["sleep", "infinity"]);
    assert_eq!(init.working_dir, "/workspace");
    assert_eq!(init.probe.port, None);
}

#[test]
fn variables_of_server_win_over_client_over_spec_over_defaults() {
    let mut spec = sealed(
        v1(),
        &[
            ("SESSION_API_KEY", "mine"),
            ("RUNTIME_ID", "mine"),
            ("LOG_JSON", "0"),
            ("BOTH", "client"),
        ],
    );
    spec.env = ["WORK_PORT_1", "BOTH", "OH_WEB_URL"]
        .map(|name| EnvVar {
            name: name.into(),
            value: Some("spec".into()),
            value_from: None,
        })
        .into();
    let environment = init_of(spec).environment;
    let session_key = keys().of(None).session_key("uid");
    for (name, value) in [
        ("SESSION_API_KEY", &*session_key),
        ("OH_SESSION_API_KEYS_0", &*session_key),
        ("RUNTIME_ID", "abcdefghijklmnop"),
        ("OH_WEB_URL", "https://abcdefghijklmnop.rt.example.com"),
        ("LOG_JSON", "0"),
        ("BOTH", "client"),
        ("WORK_PORT_2", "12001"),
    ] {
        assert_eq!(environment[name], value, "{name}");
    }
    // A variable that only the spec sets is part of the Pod.
    assert!(!environment.contains_key("WORK_PORT_1"));
}

#[test]
fn rotation_keeps_previous_key_valid_and_secret_key_unchanged() {
    let (before, after) = (rotated(v1(), 0), rotated(v1(), 1));
    assert!(!before.contains_key("OH_SESSION_API_KEYS_1"));
    assert_ne!(before["SESSION_API_KEY"], after["SESSION_API_KEY"]);
    assert_eq!(after["SESSION_API_KEY"], after["OH_SESSION_API_KEYS_0"]);
    assert_eq!(
        after["OH_SESSION_API_KEYS_1"],
        before["OH_SESSION_API_KEYS_0"]
    );
    assert_eq!(after["OH_SECRET_KEY"], before["OH_SECRET_KEY"]);
}

#[test]
fn path_urls_set_vscode_base_path() {
    let mut config = config();
    config.urls.form = UrlForm::Path;
    let (entry, keys) = (entry(v1()), keys());
    let environment = environment(&build_context(&entry, &config, &keys), 0).unwrap();
    assert_eq!(
        environment["OH_VSCODE_BASE_PATH"],
        "/abcdefghijklmnop/vscode"
    );
}

#[test]
fn init_message_rejects_variables_over_exec_limit() {
    let target = InitTarget::default();
    let fault = |spec| init(&build_context(&entry(spec), &config(), &keys()), target).unwrap_err();
    let long = "x".repeat(128 * 1024);
    let error = fault(sealed(v1(), &[("LONG", &long)]));
    assert!(matches!(&error, InitError::Variable(name) if name == "LONG"));
    assert!(!error.to_string().contains("xxx"));
    let many = with_large_variables(20);
    assert!(matches!(fault(many), InitError::TooLarge(_)));
    let elsewhere = SandboxSpec {
        sealed_env: Some(keys().seal("ns", "other", &BTreeMap::new()).unwrap()),
        ..v1()
    };
    assert!(fault(elsewhere).to_string().starts_with("spec.sealedEnv: "));
}

#[test]
fn accepted_environment_fits_into_init_message() {
    use crds::contract::control::{ControlMessage, Grant};
    use crds::contract::sealing::{SealedInit, SealingKey};
    let init = init_of(with_large_variables(14));
    let key = SealingKey::generate().unwrap();
    let sealed = SealedInit::seal(&init, key.public_key(), "uid").unwrap();
    let claim = ControlMessage::new("uid", 0, Grant::SealedInit(sealed));
    assert!(claim.sign(keys().of(None).signer()).unwrap().len() <= token::MAX_TOKEN_BYTES);
}
