use std::collections::BTreeSet;

use crds::sandbox::{SandboxSpec, Session};
use crds::{Sandbox, names};
use serde_json::{Value, json};
use shared::clock::Clock;
use shared::image_builds::ImageBuilds;
use testing::FakeApi;

use super::*;
use crate::tests::{config, context, keys};

const BUILDS: &str = "/apis/openhands.dev/v1alpha1/namespaces/ns/imagebuilds";
const NOW: &str = "2026-11-20T00:00:00Z";

/// A build of this base image with this status, in the API server.
fn put(api: &FakeApi, target: &str, base: &str, status: &Value) {
    let digest = format!("sha256:{}", "0".repeat(64));
    let spec = json!({"tenant": "default", "target": target, "base": base,
        "contextDigest": digest, "mode": "Alias"});
    let name = names::image_build("default", target);
    let object = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "ImageBuild",
        "metadata": {"name": name}, "spec": spec, "status": status,
    });
    api.put(&format!("{BUILDS}/{name}"), object);
}

fn targets(api: &FakeApi) -> BTreeSet<String> {
    let objects = api.objects();
    let targets = objects.iter().map(|object| &object["spec"]["target"]);
    targets
        .map(|target| target.as_str().unwrap().to_owned())
        .collect()
}

fn test_context(api: &FakeApi, builds: ImageBuilds) -> Context {
    let mut config = config();
    config.namespace = Some("ns".into());
    config.image_builds = builds;
    let clock = Clock::starting_at(NOW.parse().unwrap());
    context(api.client(), config, clock)
}

/// A sandbox of a session that runs this image, in this phase.
fn sandbox(context: &Context, session: &str, image: &str, phase: &str) {
    let name = keys().session_runtime_id("ns", "default", session, 0);
    let spec = SandboxSpec {
        image: Some(image.into()),
        session: Some(Session {
            tenant: "default".into(),
            id: session.into(),
            ..Session::default()
        }),
        ..SandboxSpec::default()
    };
    let mut sandbox = Sandbox::new(&name, spec);
    sandbox.metadata.namespace = Some("ns".into());
    sandbox.metadata.uid = Some(name);
    sandbox.metadata.resource_version = Some("1".into());
    sandbox.status = serde_json::from_value(json!({"phase": phase})).unwrap();
    context.index.apply(&sandbox).unwrap();
}

#[tokio::test(start_paused = true)]
async fn unused_and_failed_builds_are_deleted() {
    let api = FakeApi::default();
    let succeeded = |at: &str| json!({"phase": "Succeeded", "finishedAt": at});
    put(&api, "r:old", "a", &succeeded("2026-11-05T00:00:00Z"));
    put(&api, "r:new", "a", &succeeded("2026-11-07T00:00:00Z"));
    let mut used = succeeded("2026-01-01T00:00:00Z");
    used["lastUsedAt"] = "2026-11-19T00:00:00Z".into();
    put(&api, "r:used", "a", &used);
    let failed = |at: &str| json!({"phase": "Failed", "finishedAt": at});
    put(&api, "r:failed", "a", &failed("2026-11-18T23:00:00Z"));
    put(&api, "r:failed-now", "a", &failed("2026-11-19T23:00:00Z"));
    // It was created in January.
    put(&api, "r:interrupted", "a", &json!({}));
    let context = test_context(&api, ImageBuilds::Alias);
    assert_eq!(delete_once(&context).await.unwrap(), 3);
    let left = ["r:failed-now", "r:new", "r:used"].map(str::to_owned);
    assert_eq!(targets(&api), BTreeSet::from(left));
}

#[tokio::test(start_paused = true)]
async fn build_of_a_sandbox_is_kept() {
    let api = FakeApi::default();
    let old = json!({"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z"});
    for base in ["paused", "running", "stopped", "unused"] {
        put(&api, &format!("r:{base}"), base, &old);
    }
    let context = test_context(&api, ImageBuilds::Alias);
    sandbox(&context, "1", "paused", "Paused");
    sandbox(&context, "2", "running", "Running");
    sandbox(&context, "3", "stopped", "Stopped");
    assert_eq!(delete_once(&context).await.unwrap(), 2);
    let left = ["r:paused", "r:running"].map(str::to_owned);
    assert_eq!(targets(&api), BTreeSet::from(left));
}

#[tokio::test(start_paused = true)]
async fn builds_are_looked_at_every_hour_also_after_an_outage() {
    let api = FakeApi::default();
    let context = test_context(&api, ImageBuilds::Alias);
    api.set_unavailable(true);
    let later = async {
        sleep(INTERVAL).await;
        api.set_unavailable(false);
        put(&api, "r:late", "a", &json!({}));
        assert_eq!(targets(&api).len(), 1);
        sleep(INTERVAL).await;
        assert!(targets(&api).is_empty());
    };
    tokio::select! {
        () = delete_unused(&context) => unreachable!("it never ends"),
        () = later => {}
    }
}

#[tokio::test(start_paused = true)]
async fn builds_are_not_listed_when_they_are_off() {
    let api = FakeApi::default();
    let context = test_context(&api, ImageBuilds::Off);
    tokio::select! {
        () = delete_unused(&context) => unreachable!("it never ends"),
        () = sleep(INTERVAL * 3) => {}
    }
    assert!(api.calls().is_empty());
}
