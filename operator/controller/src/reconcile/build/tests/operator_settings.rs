//! Effect of the settings of the installation on a Pod.

use serde_json::json;

use super::fixtures::{built, config, plain, v1};
use super::*;
use crate::config::{ConfigMapMount, Injection, PodSettings};
use crate::facts::PodFacts;
use shared::kubernetes::slim::SlimPod;

#[test]
fn pod_with_operator_settings() {
    let mut config = config();
    config.pods = PodSettings {
        injection: Injection::ImageVolume,
        pull_secrets: vec!["registry".into()],
        node_selector: [("openhands.dev/sandbox".to_owned(), "true".to_owned())].into(),
        tolerations: vec![serde_json::from_value(json!({"key": "sandboxes"})).unwrap()],
        affinity: Some(serde_json::from_value(json!({"nodeAffinity": {}})).unwrap()),
        config_maps: vec![ConfigMapMount {
            name: "ca-bundle".into(),
            path: "/etc/openhands/ca-bundle".into(),
        }],
        priority_class: Some("low".into()),
        user_namespaces: true,
        grace_seconds: 30,
        privileged_templates: false,
    };
    config.defaults.runtime_class_name = Some("runsc".into());
    insta::assert_yaml_snapshot!(built(plain(), &config, &PodParams::default()).unwrap());
}

#[test]
fn missing_runtime_class_is_replaced_by_default_with_note() {
    let mut config = config();
    config.defaults.runtime_class_name = Some("runc".into());
    let class = |params: &PodParams<'_>| {
        let pod = built(v1(), &config, params).unwrap();
        let slim: SlimPod = serde_json::from_value(serde_json::to_value(&pod).unwrap()).unwrap();
        let slim = SlimPod {
            metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                uid: Some("u".into()),
                ..slim.metadata
            },
            ..slim
        };
        let note = PodFacts::read(&slim).unwrap().annotations.note;
        (pod.spec.unwrap().runtime_class_name, note)
    };
    assert_eq!(
        class(&PodParams::default()),
        (Some("sysbox-runc".into()), None)
    );
    let fallback = PodParams {
        default_class: true,
        ..PodParams::default()
    };
    let note = "the runtime class sysbox-runc is not installed; the default is used";
    assert_eq!(class(&fallback), (Some("runc".into()), Some(note.into())));
}

#[test]
fn pod_annotation_records_key_rotation() {
    let rotation = |mut spec: SandboxSpec| {
        spec.key_rotation = Some(2);
        let pod = built(spec, &config(), &PodParams::default()).unwrap();
        let notes = pod.metadata.annotations.unwrap_or_default();
        notes.get("openhands.dev/key-rotation").cloned()
    };
    assert_eq!(rotation(v1()), Some("2".into()));
    assert_eq!(rotation(v0()), None);
}
