//! Creation in a cluster without a runtime class, and with Secrets that exist already.

mod persistence;
mod runtime_classes;

use std::sync::Arc;

use crds::sandbox::SandboxSpec;
use serde_json::{Value, json};
use testing::FakeApi;

use super::*;
use crate::config::{ControllerConfig, Deadlines};
use crate::facts::Facts;
use crate::tests::{config, context, entry, keys, v1};
use shared::clock::Clock;

/// API server without these runtime classes, which the next creations request.
fn api_without(classes: &[&str]) -> FakeApi {
    let api = FakeApi::default();
    for class in classes {
        // Text of the admission plug-in of Kubernetes.
        let text = format!("pods \"a\" is forbidden: RuntimeClass \"{class}\" not found");
        api.fail_with(403, &text);
    }
    api
}

fn context_of(api: &FakeApi, config: ControllerConfig) -> Context {
    context(api.client(), config, Clock::wall())
}

fn observed(spec: SandboxSpec) -> Observed {
    Observed {
        level: crds::contract::persistence::PersistenceLevel::Workspace,
        persistence_obstacle: None,
        plugins: Vec::new(),
        entry: Arc::new(entry(spec)),
        facts: Facts::default(),
        deadlines: Deadlines::default(),
        url: "https://abcdefghijklmnop.rt.example.com".into(),
    }
}

#[tokio::test]
async fn missing_runtime_class_falls_back_unless_installation_is_strict() {
    let fallback = "the runtime class sysbox-runc is not installed; the default is used";
    for (missing, class, note) in [
        (&[][..], json!("sysbox-runc"), None),
        (&["sysbox-runc"], Value::Null, Some(fallback)),
    ] {
        let api = api_without(missing);
        let (context, observed) = (context_of(&api, config()), observed(v1()));
        pod(&context, &observed, PodParams::default())
            .await
            .unwrap();
        assert_eq!(api.objects()[0]["spec"]["runtimeClassName"], class);
        let made = context.pods.get(&observed.entry.key, "uid", None).unwrap();
        assert_eq!(made.note.as_deref(), note);
    }
    let strict = "spec.runtimeClassName: the cluster has no RuntimeClass sysbox-runc";
    let default = "RuntimeClass \"runsc\" not found";
    for (is_strict, missing, message) in [
        (true, &["sysbox-runc"][..], strict),
        (false, &["sysbox-runc", "runsc"], default),
    ] {
        let mut config = config();
        config.classes.strict = is_strict;
        config.defaults.runtime_class_name = Some("runsc".into());
        let api = api_without(missing);
        let context = context_of(&api, config);
        let error = pod(&context, &observed(v1()), PodParams::default())
            .await
            .unwrap_err();
        let rejection = error.rejection().unwrap();
        assert_eq!(rejection.is_terminal, is_strict, "{rejection:?}");
        assert!(rejection.message.contains(message), "{rejection:?}");
        assert_eq!(api.calls().len(), missing.len());
    }
}

#[tokio::test]
async fn environment_secret_belongs_to_its_pod_and_is_created_again_if_missing() {
    let api = FakeApi::default();
    let context = context_of(&api, config());
    let spec = SandboxSpec {
        command: None,
        key_rotation: Some(1),
        ..v1()
    };
    let mut observed = observed(spec);
    pod(&context, &observed, PodParams::default())
        .await
        .unwrap();
    let made = context.pods.get(&observed.entry.key, "uid", None).unwrap();
    observed.facts.pod = Some(Arc::unwrap_or_clone(made));
    let [pod, first] = &api.objects()[..] else {
        panic!("a Pod and its Secret");
    };
    let container = &pod["spec"]["containers"][0];
    let named = &container["envFrom"][0]["secretRef"]["name"];
    assert_eq!(first["metadata"]["name"], *named);
    let owner = &first["metadata"]["ownerReferences"][0];
    let uid = &pod["metadata"]["uid"];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Pod"), uid));
    let secret: Secret = serde_json::from_value(first.clone()).unwrap();
    let key = keys().of(None).rotated_session_key("uid", 1);
    assert_eq!(secret.data.unwrap()["SESSION_API_KEY"].0, key.into_bytes());

    missing_secret(&context, &observed).await.unwrap();
    assert_eq!(api.objects()[1], *first, "it exists");
    let name = named.as_str().unwrap();
    api.delete(&format!("/api/v1/namespaces/ns/secrets/{name}"));
    missing_secret(&context, &observed).await.unwrap();
    let second = &api.objects()[1];
    assert_eq!(first["data"], second["data"]);
    assert_eq!(*owner, second["metadata"]["ownerReferences"][0]);
    api.fail([403]);
    assert!(missing_secret(&context, &observed).await.is_err());
}

#[tokio::test]
async fn oversized_object_is_terminal_and_forbidden_is_retried() {
    let large = "Request entity too large: limit is 3145728";
    let invalid = "Pod \"a\" is invalid: spec.containers[0].env[0].name";
    for (code, message, terminal) in [
        (413, large, Some(true)),
        (500, "etcdserver: request is too large", Some(true)),
        (422, invalid, Some(true)),
        (403, "exceeded quota: compute", Some(false)),
        (500, "etcdserver: leader changed", None),
    ] {
        let api = FakeApi::default();
        api.fail_with(code, message);
        let context = context_of(&api, config());
        let error = pod(&context, &observed(v1()), PodParams::default())
            .await
            .unwrap_err();
        let rejected = error.rejection().map(|it| (it.is_terminal, it.message));
        let expected = terminal.map(|terminal| (terminal, message.to_owned()));
        assert_eq!(rejected, expected);
    }
}

#[tokio::test]
async fn pod_has_a_grace_period_even_if_none_is_configured() {
    let (api, mut config) = (FakeApi::default(), config());
    config.pods.grace_seconds = 0;
    let context = context_of(&api, config);
    pod(&context, &observed(v1()), PodParams::default())
        .await
        .unwrap();
    let made = &api.objects()[0];
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 1);
}
