//! Snapshots of built objects, and errors of specs that cannot be built.

use std::collections::BTreeMap;

use crds::contract::persistence::{PersistenceLevel, RootMechanism};
use crds::contract::variable;
use crds::int_or_string::IntOrString;
use crds::sandbox::SandboxSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Volume};
use serde_json::{Value, json};

use super::persistence::{PersistenceObstacle, level, pod_persistence};
use super::pod::bind_to_node;
use super::*;
use crate::config::{ConfigMapMount, Injection, PodSettings, RootPersistence, UserNamespaces};
use crate::facts::EXECUTOR_ANNOTATION;
use crate::pod_features::PodFeatures;
use crate::reconcile::init_message;
use crate::tests::{build_context, built, config, entry, keys, plain, session, v0, v1};

fn build(spec: SandboxSpec) -> Result<Pod, BuildError> {
    built(spec, &config(), &PodParams::default())
}

/// The Pod of a spec without a command, with its Secret.
fn build_with_secret(spec: &SandboxSpec) -> (Pod, Secret) {
    let secret = secret_of(spec).unwrap();
    let params = PodParams {
        secret: Some(&secret),
        ..PodParams::default()
    };
    (built(spec.clone(), &config(), &params).unwrap(), secret)
}

fn fault(spec: SandboxSpec) -> String {
    build(spec).unwrap_err().to_string()
}

/// A spec with other fields than `base`.
fn changed(base: SandboxSpec, fields: &Value) -> SandboxSpec {
    let mut spec = serde_json::to_value(base).unwrap();
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// The environment Secret of a sandbox.
fn secret_of(spec: &SandboxSpec) -> Result<Secret, BuildError> {
    let (entry, config, keys) = (entry(spec.clone()), config(), keys());
    let context = build_context(&entry, &config, &keys);
    environment_secret::secret(&context, "a-1-sbx-env".into(), environment_of(&context))
}

fn environment_of(context: &BuildContext<'_>) -> init_message::Environment {
    init_message::environment(context, 0).unwrap()
}

fn claim_of(spec: SandboxSpec) -> Result<Option<PersistentVolumeClaim>, BuildError> {
    volumes::claim(&build_context(&entry(spec), &config(), &keys()))
}

fn sealed(variable: &str) -> String {
    let client = BTreeMap::from([(variable.to_owned(), "hunter2".to_owned())]);
    keys().seal("ns", "a", &client).unwrap()
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
fn pod_that_waits_for_a_resume_names_the_pause_and_requests_little() {
    let params = PodParams {
        created_in_pause: Some(Timestamp::UNIX_EPOCH),
        is_small: true,
        ..PodParams::default()
    };
    insta::assert_yaml_snapshot!(built(plain(), &config(), &params).unwrap());
}

#[test]
fn pod_of_a_v1_session() {
    insta::assert_yaml_snapshot!(build(v1()).unwrap());
}

#[test]
fn pod_of_a_v1_session_without_command() {
    let spec = changed(v1(), &json!({"command": null, "keyRotation": 2}));
    insta::assert_yaml_snapshot!(build_with_secret(&spec).0);
}

#[test]
fn pod_of_an_image_entrypoint_with_a_user() {
    let spec = json!({
        "image": "nginx", "workingDir": "/srv", "ports": [{"name": "web", "port": 8080}],
        "securityContext": {"runAsUser": 10001}, "imagePullPolicy": "Never",
    });
    insta::assert_yaml_snapshot!(build(serde_json::from_value(spec).unwrap()).unwrap());
}

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
        user_namespaces: UserNamespaces::Always,
        grace_seconds: 30,
        privileged_templates: false,
        network_policy: None,
    };
    config.defaults.runtime_class_name = Some("runsc".into());
    insta::assert_yaml_snapshot!(built(plain(), &config, &PodParams::default()).unwrap());
}

#[test]
fn pod_of_a_sandbox_that_keeps_its_root() {
    let fields = json!({"workspace": {"size": "1Gi"}, "persistence": "Root"});
    let pod = build(changed(plain(), &fields)).unwrap();
    let container = &pod.spec.as_ref().unwrap().containers[0];
    insta::assert_yaml_snapshot!((&pod.metadata.annotations, &container.volume_mounts));
    let variables = container.env.iter().flatten();
    let mut names = variables.map(|variable| variable.name.as_str());
    assert!(names.any(|name| name == variable::PERSISTENCE));
}

#[test]
fn automatic_level_is_root_where_changed_files_are_written_at_once() {
    use PersistenceLevel::{Root, Workspace};
    let features = |root_persistence, user_namespaces| PodFeatures {
        user_namespaces,
        root_persistence,
        ..PodFeatures::default()
    };
    let node = features(RootPersistence::Node, UserNamespaces::Never);
    let overlay = features(RootPersistence::Auto, UserNamespaces::Auto);
    let archive = features(RootPersistence::Auto, UserNamespaces::Never);
    let of = |spec: SandboxSpec, features| level(&entry(spec), &config(), features, None);
    let other_user = json!({"securityContext": {"runAsUser": 1000}});
    for (name, fields, expected) in [
        ("a client's", json!({}), [Root, Root, Workspace]),
        ("no client's", json!({"session": null}), [Workspace; 3]),
        ("no volume", json!({"workspace": null}), [Workspace; 3]),
        ("no supervisor", json!({"command": null}), [Workspace; 3]),
        ("other user", other_user, [Root, Workspace, Workspace]),
        (
            "explicit",
            json!({"persistence": "Workspace"}),
            [Workspace; 3],
        ),
    ] {
        let spec = changed(v0(), &fields);
        let levels = [node, overlay, archive].map(|features| of(spec.clone(), features));
        assert_eq!(levels, expected, "{name}");
    }
    // The volume of a sandbox decides once it is there, and its Pod until then.
    let mut old = entry(v0());
    assert_eq!(level(&old, &config(), overlay, Some(Workspace)), Workspace);
    old.status.workspace_claim = Some("a-workspace".into());
    assert_eq!(level(&old, &config(), overlay, None), Workspace);
    old.status.has_state_volume = true;
    old.status.root_mechanism = Some(RootMechanism::Overlay);
    assert_eq!(level(&old, &config(), archive, None), Root);
}

#[test]
fn level_is_workspace_where_an_obstacle_keeps_it_from_being_more() {
    let volume = json!({"size": "1Gi"});
    let features = |root_persistence| PodFeatures {
        root_persistence,
        ..PodFeatures::default()
    };
    let [archive, node] = [RootPersistence::Archive, RootPersistence::Node].map(features);
    for (fields, mechanism, reason) in [
        (json!({}), archive, "has no workspace volume"),
        (
            json!({"workspace": volume, "command": null}),
            node,
            "without a supervisor",
        ),
        (
            json!({"workspace": volume, "securityContext": {"runAsUser": 1000}}),
            archive,
            "starts as user 0",
        ),
        (
            json!({"workspace": volume, "securityContext": {"runAsUser": 1000}}),
            node,
            "",
        ),
    ] {
        let mut spec = changed(plain(), &fields);
        spec.persistence = Some(PersistenceLevel::Root);
        let obstacle =
            pod_persistence(&entry(spec), PersistenceLevel::Root, &config(), mechanism).err();
        let said = obstacle.map(|obstacle| obstacle.to_string());
        assert!(
            said.as_deref().unwrap_or_default().contains(reason),
            "{fields}: {said:?}"
        );
        assert_eq!(said.is_none(), reason.is_empty(), "{fields}");
    }
    let mut old = entry(changed(
        plain(),
        &json!({"workspace": volume, "persistence": "Root"}),
    ));
    old.status.workspace_claim = Some("a-workspace".into());
    let obstacle = pod_persistence(&old, PersistenceLevel::Root, &config(), archive).unwrap_err();
    assert_eq!(obstacle, PersistenceObstacle::PlainVolume);
    old.status.has_state_volume = true;
    let persistence = pod_persistence(&old, PersistenceLevel::Root, &config(), archive)
        .unwrap()
        .unwrap();
    assert_eq!(persistence.root, RootMechanism::Archive);
    assert_eq!(
        persistence.withheld.join(" "),
        "CHOWN DAC_OVERRIDE FOWNER FSETID SETFCAP SETPCAP"
    );
    let disabled = features(RootPersistence::None);
    let obstacle = pod_persistence(&old, PersistenceLevel::Root, &config(), disabled).unwrap_err();
    assert_eq!(obstacle, PersistenceObstacle::Disabled);
    // The mechanism of a volume stays.
    old.status.root_mechanism = Some(RootMechanism::Overlay);
    let without = PodFeatures {
        user_namespaces: UserNamespaces::Never,
        ..archive
    };
    let obstacle = pod_persistence(&old, PersistenceLevel::Root, &config(), without).unwrap_err();
    assert_eq!(obstacle, PersistenceObstacle::NoUserNamespace);
}

#[test]
fn pod_copies_the_executor_under_a_class_that_may_be_a_virtual_machine() {
    let template = |class: &str| json!({"podTemplate": {"spec": {"runtimeClassName": class}}});
    for (default, spec, mounts) in [
        (None, json!({}), true),
        (None, json!({"runtimeClassName": "runc"}), true),
        (None, json!({"runtimeClassName": "gvisor"}), false),
        (None, template("kata"), false),
        (Some("kata"), json!({}), false),
        (Some("kata"), template("crun"), true),
    ] {
        let mut config = config();
        config.pods.injection = Injection::Auto;
        config.defaults.runtime_class_name = default.map(str::to_owned);
        let pod = built(changed(plain(), &spec), &config, &PodParams::default()).unwrap();
        let has_image = |volume: &Volume| volume.image.is_some();
        let pod_spec = pod.spec.unwrap();
        assert_eq!(
            pod_spec.volumes.iter().flatten().any(has_image),
            mounts,
            "{spec}"
        );
        assert_eq!(pod_spec.init_containers.is_none(), mounts, "{spec}");
        let is_marked = pod
            .metadata
            .annotations
            .unwrap()
            .contains_key(EXECUTOR_ANNOTATION);
        assert_eq!(is_marked, mounts, "{spec}");
    }
}

#[test]
fn pod_has_a_user_namespace_where_it_fits() {
    let template = |spec: Value| json!({"podTemplate": {"spec": spec}});
    let nfs = json!({"name": "share", "nfs": {"server": "s", "path": "/"}});
    for (setting, spec, expected) in [
        (UserNamespaces::Never, json!({}), None),
        (UserNamespaces::Auto, json!({}), Some(false)),
        (
            UserNamespaces::Auto,
            json!({"securityContext": {"runAsUser": 1000}}),
            Some(false),
        ),
        (
            UserNamespaces::Auto,
            template(json!({"hostNetwork": true})),
            None,
        ),
        (
            UserNamespaces::Auto,
            template(json!({"volumes": [nfs]})),
            None,
        ),
        (
            UserNamespaces::Auto,
            template(json!({"hostUsers": true})),
            Some(true),
        ),
        (
            UserNamespaces::Never,
            template(json!({"hostUsers": false})),
            Some(false),
        ),
    ] {
        let mut config = config();
        config.pods.user_namespaces = setting;
        config.pods.privileged_templates = true;
        let pod = built(changed(plain(), &spec), &config, &PodParams::default()).unwrap();
        assert_eq!(pod.spec.unwrap().host_users, expected, "{setting:?} {spec}");
    }
}

#[test]
fn template_cannot_leave_the_user_namespace_without_privileges() {
    let mut config = config();
    config.pods.user_namespaces = UserNamespaces::Auto;
    let spec = json!({"podTemplate": {"spec": {"hostUsers": true}}});
    built(changed(plain(), &spec), &config, &PodParams::default()).unwrap_err();
}

#[test]
fn pod_on_a_node_has_it_in_each_term_of_its_affinity() {
    let term = |zone: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
    let own = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [term("a"), term("b")]}}});
    let template = json!({"podTemplate": {"spec": {"affinity": own}}});
    for (spec, terms) in [(json!({}), 1), (template, 2)] {
        let mut pod = built(changed(plain(), &spec), &config(), &PodParams::default()).unwrap();
        bind_to_node(&mut pod, "node-1");
        let affinity = json!(pod.spec.unwrap().affinity).to_string();
        let field =
            r#""matchFields":[{"key":"metadata.name","operator":"In","values":["node-1"]}]"#;
        assert_eq!(affinity.matches(field).count(), terms, "{affinity}");
    }
}

#[test]
fn claim_of_a_workspace() {
    insta::assert_yaml_snapshot!(claim_of(v0()).unwrap());
}

#[test]
fn invalid_workspace_size_is_rejected() {
    for size in ["", "much", "-1Gi", "0"] {
        let mut spec = v0();
        spec.workspace.as_mut().unwrap().size = IntOrString::String(size.into());
        let fault = claim_of(spec).unwrap_err().to_string();
        assert!(fault.starts_with("spec.workspace.size: "), "{fault}");
    }
}

#[test]
fn privileged_template_requires_setting() {
    let template = json!({"spec": {"hostNetwork": true}});
    let spec = changed(plain(), &json!({"podTemplate": template}));
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
fn errors_name_path_of_field() {
    let reference = json!({"name": "A", "valueFrom": {"secretKeyRef": 3}});
    let control = json!([{"name": "control", "port": crds::contract::CONTROL_PORT}]);
    for (fields, path) in [
        (
            json!({"env": [reference]}),
            "spec.env[0].valueFrom.secretKeyRef: ",
        ),
        (
            json!({"env": [{"name": "SANDBOX_CONTROL_PUBLIC_KEY"}]}),
            "spec.env[0].name: ",
        ),
        (json!({"ports": control}), "spec.ports[0].port: "),
        (json!({"image": null}), "spec.image is missing"),
    ] {
        let found = fault(changed(plain(), &fields));
        assert!(found.starts_with(path), "{found}");
    }
    let unsupervised = json!({"ports": control, "command": null});
    assert!(build(changed(plain(), &unsupervised)).is_ok());
}

#[test]
fn pod_contains_no_secret() {
    let spec = changed(v0(), &json!({"sealedEnv": sealed("LLM_API_KEY")}));
    let (entrypoint, secret) = build_with_secret(&changed(spec.clone(), &json!({"command": null})));
    for pod in [build(spec).unwrap(), entrypoint] {
        let pod = serde_json::to_string(&pod).unwrap();
        let data = secret.data.as_ref().unwrap();
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
    let container = json!({"name": "sandbox", "env": [variable("RUNTIME_ID"), variable("B")]});
    let spec = json!({
        "image": "agent-server", "session": session(),
        "env": [variable("SESSION_API_KEY"), variable("A")],
        "podTemplate": {"spec": {"containers": [container]}},
    });
    let (pod, _) = build_with_secret(&serde_json::from_value(spec).unwrap());
    let own = pod.spec.unwrap().containers[0].env.clone().unwrap();
    let names: Vec<_> = own.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["A", "B"]);
}

#[test]
fn variable_that_secret_cannot_hold_is_rejected() {
    let spec = changed(v1(), &json!({"command": null, "sealedEnv": sealed("A B")}));
    let fault = secret_of(&spec).unwrap_err().to_string();
    let expected = "spec.sealedEnv: the variable \"A B\"";
    assert!(fault.starts_with(expected), "{fault}");
}
