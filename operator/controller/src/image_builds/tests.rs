//! Pods of full builds.

use crds::ImageBuild;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::pod::BuildPod;
use crate::config::{BuildSteps, BuilderConfig, BuilderIsolation};

fn build(spec: &serde_json::Value, base_image: Option<&str>) -> ImageBuild {
    let mut object = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "ImageBuild",
        "metadata": {"name": "abc", "namespace": "sandboxes", "uid": "1"},
        "spec": {"tenant": "alice", "target": "r.example/a/runtime:oh_v1_l_s",
            "tags": ["r.example/a/runtime:oh_v1_l"], "contextDigest": "sha256:c", "mode": "Full"},
        "status": {"context": "r.example/a/runtime@sha256:cc"},
    });
    for (name, value) in spec.as_object().unwrap() {
        object["spec"][name] = value.clone();
    }
    object["status"]["baseImage"] = json!(base_image);
    serde_json::from_value(object).unwrap()
}

fn pod(build: &ImageBuild, config: &BuilderConfig) -> Pod {
    let pod = BuildPod {
        build,
        config,
        seconds: 1700,
    };
    pod.pod()
}

fn with_secret(isolation: BuilderIsolation) -> BuilderConfig {
    BuilderConfig {
        isolation,
        steps: BuildSteps::Containers {
            image: "operator:1".into(),
            registry_secret: Some("registries".into()),
        },
        insecure_registries: vec!["10.0.0.1:5000".into()],
        ..BuilderConfig::default()
    }
}

#[test]
fn steps_have_the_credentials_and_the_builder_has_none() {
    let config = with_secret(BuilderIsolation::Rootless);
    let build = build(
        &json!({"base": "debian:12"}),
        Some("docker.io/library/debian@sha256:b"),
    );
    let pod = pod(&build, &config);
    let spec = pod.spec.clone().unwrap();
    let init = spec.init_containers.unwrap();
    let has_credentials = |name: &str| {
        let all = init.iter().chain(&spec.containers);
        let mut found = all.filter(|container| container.name == name);
        let mounts = found.next().unwrap().volume_mounts.clone().unwrap();
        mounts.iter().any(|mount| mount.name == "registry")
    };
    assert!(has_credentials("fetch") && has_credentials("push") && !has_credentials("build"));
    insta::assert_yaml_snapshot!(pod);
}

#[test]
fn builder_is_root_only_in_a_user_namespace() {
    let config = with_secret(BuilderIsolation::UserNamespace);
    let pod = pod(&build(&json!({}), None), &config).spec.unwrap();
    assert_eq!(pod.host_users, Some(false));
    let builder = &pod.init_containers.unwrap()[1];
    let security = builder.security_context.clone().unwrap();
    assert_eq!(
        (security.privileged, security.run_as_user),
        (Some(true), Some(0))
    );
    let rootless = with_secret(BuilderIsolation::Rootless);
    let pod = self::pod(&build(&json!({}), None), &rootless).spec.unwrap();
    assert_eq!(pod.host_users, None);
    let security = pod.init_containers.unwrap()[1]
        .security_context
        .clone()
        .unwrap();
    assert_eq!(security.privileged, None);
}

#[test]
fn builder_gets_the_base_image_under_its_name_in_the_dockerfile() {
    let digest = format!("sha256:{}", "b".repeat(64));
    let fetched = format!("r.example/base@{digest}");
    let options = |spec: serde_json::Value, base: Option<&str>| {
        let pod = pod(&build(&spec, base), &BuilderConfig::default());
        let init = pod.spec.unwrap().init_containers.unwrap();
        let command = init[1].command.clone().unwrap();
        let is_base = |arg: &String| arg.contains("context:") || arg.starts_with("--oci-layout");
        command.into_iter().filter(is_base).collect::<Vec<_>>()
    };
    let layout = "--oci-layout=base=/build/source/base".to_owned();
    for (from, name) in [
        ("debian", "debian"),
        ("docker.io/library/debian:12", "debian:12"),
        ("python:latest", "python"),
        ("docker.io/me/app:1", "me/app:1"),
        ("index.docker.io/me/app:1", "me/app:1"),
        ("ghcr.io/a/b:latest", "ghcr.io/a/b"),
        ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000/a/b:1"),
    ] {
        let context = format!("--opt=context:{name}=oci-layout://base@{digest}");
        assert_eq!(
            options(json!({"base": from}), Some(&fetched)),
            [layout.clone(), context]
        );
    }
    // Not fetched: the builder pulls it, under the name of an earlier alias.
    assert_eq!(
        options(json!({"base": "debian:12"}), None),
        <[String; 0]>::default()
    );
    let alias = json!({"base": "debian:12", "from": "r.example/a/runtime:oh_v1_l"});
    assert_eq!(
        options(alias, None),
        ["--opt=context:r.example/a/runtime:oh_v1_l=docker-image://debian:12"]
    );
    assert_eq!(options(json!({}), None), <[String; 0]>::default());
}
