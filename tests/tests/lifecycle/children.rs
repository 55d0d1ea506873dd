//! What a sandbox that runs its image's own entrypoint is given, and that nothing of it stays; and
//! what becomes of specs that cannot be built.

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tests::world::{NAMESPACE, TestGateway, World};

async fn start(gateway: &TestGateway) -> Value {
    let body = json!({
        "session_id": "s", "image": "agent-server:1", "command": null,
        "environment": {"TOKEN": "hunter2"}, "working_dir": "/workspace/project",
        "run_as_user": 10001,
    });
    let answer = gateway.post("/start", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.body
}

/// The variables in the Secret of a sandbox; `None` if there is none.
async fn variables(world: &World, name: &str) -> Option<Value> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    let secret = secrets.get_opt(&format!("{name}-sbx-env")).await.unwrap()?;
    assert_eq!(secret.immutable, Some(true));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let data = secret.data.unwrap().into_iter();
    Some(
        data.map(|(name, value)| (name, Value::from(text(value.0))))
            .collect(),
    )
}

async fn rotate(world: &World, name: &str, number: u32) {
    let patch = Patch::Merge(json!({"spec": {"keyRotation": number}}));
    let sandboxes = world.sandboxes();
    let patched = sandboxes.patch(name, &PatchParams::default(), &patch).await;
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_without_command_gets_its_environment_through_a_secret() {
    let world = World::new();
    let gateway = world.gateway().await;
    let info = start(&gateway).await;
    let name = info["runtime_id"].as_str().unwrap();
    world.phase(name, Phase::Running).await;

    let given = variables(&world, name).await.unwrap();
    assert_eq!(given["TOKEN"], "hunter2");
    assert_eq!(given["SESSION_API_KEY"], info["session_api_key"]);
    assert_eq!(given["OH_SESSION_API_KEYS_0"], info["session_api_key"]);
    assert_eq!(given["RUNTIME_URL"], info["url"]);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let pod = serde_json::to_string(&pods.get(name).await.unwrap()).unwrap();
    assert!(!pod.contains("hunter2") && pod.contains(&format!("{name}-sbx-env")));

    world.ask(name, DesiredState::Paused).await;
    world.phase(name, Phase::Paused).await;
    assert_eq!(variables(&world, name).await, None);
    world.ask(name, DesiredState::Running).await;
    world.phase(name, Phase::Running).await;
    assert_eq!(variables(&world, name).await.unwrap(), given);
    world.ask(name, DesiredState::Stopped).await;
    world.phase(name, Phase::Stopped).await;
    assert!(world.names::<Secret>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rotated_key_is_told_once_the_sandbox_knows_it() {
    let world = World::new();
    let gateway = world.gateway().await;
    let first = start(&gateway).await["session_api_key"].clone();
    let runtimes = world.names::<Sandbox>().await;
    let name = runtimes[0].as_str();
    world.phase(name, Phase::Running).await;

    rotate(&world, name, 1).await;
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    let told = async || gateway.get("/sessions/s").await.body["session_api_key"].clone();
    assert_eq!(told().await, first);

    world.ask(name, DesiredState::Paused).await;
    world.phase(name, Phase::Paused).await;
    assert_eq!(told().await, first);
    world.ask(name, DesiredState::Running).await;
    let entry = world.phase(name, Phase::Running).await;
    assert_eq!(entry.status.key_rotation, Some(1));
    // The gateway's own index may be a moment behind.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let second = told().await;
    let given = variables(&world, name).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(given["OH_SESSION_API_KEYS_0"], second);
    assert_eq!(given["OH_SESSION_API_KEYS_1"], first);
}

#[tokio::test(start_paused = true)]
async fn a_lost_pod_takes_a_rotated_key_with_it() {
    let world = World::new();
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    rotate(&world, "a", 1).await;
    world.lose_pod("a").await;
    let entry = world.wait("a", |e| e.status.key_rotation == Some(1)).await;
    assert_eq!(entry.unwrap().status.key_rotation, Some(1));
    world.phase("a", Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_built_fails_at_once_says_where_and_stays() {
    for (name, spec, message) in [
        (
            "template",
            json!({"podTemplate": {"spec": {"containers": [{"name": "sandbox", "tty": "yes"}]}}}),
            "spec.podTemplate.spec.containers[0].tty: ",
        ),
        (
            "privileged",
            json!({"podTemplate": {"spec": {"hostPID": true}}}),
            "spec.podTemplate.spec: hostPID is allowed only",
        ),
        (
            "sealed",
            json!({"sealedEnv": "v1.AAAA"}),
            "spec.sealedEnv: ",
        ),
    ] {
        let world = World::new();
        let mut spec = spec;
        spec["image"] = json!("debian:12");
        spec["command"] = json!(["sleep", "infinity"]);
        let sandbox = Sandbox::new(name, serde_json::from_value(spec).unwrap());
        let made = world.sandboxes();
        made.create(&PostParams::default(), &sandbox).await.unwrap();
        let entry = world.phase(name, Phase::Failed).await;
        let told = entry.status.message.clone().unwrap_or_default();
        assert!(told.starts_with(message), "{told}");
        assert!(world.names::<Pod>().await.is_empty());
        assert!(world.names::<PersistentVolumeClaim>().await.is_empty());

        let before = world.api.faults().total_writes();
        tokio::time::sleep(std::time::Duration::from_hours(1)).await;
        assert_eq!(world.api.faults().total_writes(), before, "{name}");
    }
}
