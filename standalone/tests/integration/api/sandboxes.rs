//! The CRDs of the product: their rules must compile and mean the same as in a cluster.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use standalone::api::EmbeddedApi;

use super::fixtures::{ApiExt as _, clock, message, object};

fn sandboxes() -> Api<DynamicObject> {
    objects::<crds::Sandbox>()
}

fn objects<K: kube::Resource<DynamicType = ()>>() -> Api<DynamicObject> {
    let client = EmbeddedApi::in_memory(&crds::schema::all_crds(), clock()).client();
    Api::default_namespaced_with(client, &ApiResource::erase::<K>(&()))
}

fn sandbox(name: &str, spec: &Value) -> DynamicObject {
    object(
        json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"name": name}, "spec": spec}),
    )
}

#[tokio::test]
async fn sample_sandbox_is_accepted_and_paused() {
    let sample: DynamicObject =
        serde_yaml::from_str(include_str!("../../../../manifests/samples/sandbox.yaml")).unwrap();
    let api = sandboxes();
    let made = api.add(&sample).await;
    assert_eq!(made.data["spec"]["state"], "Running");
    let pause = json!({"spec": {"state": "Paused", "resourceFactor": 2}});
    let paused = api.change("demo", pause).await;
    assert_eq!(paused.metadata.generation, Some(2));
}

/// A name, a spec, and the complaint about them.
const REFUSED: &str = r#"
    x | {"command": ["true"]} | image is required unless pool is set
    x | {"image": "a", "resourceFactor": 0} | greater than 0
    x | {"image": "a", "workspace": {"size": "10GB"}} | must be a quantity such as 10Gi
    x | {"image": "a", "resources": {"limits": {"cpu": "much"}}} | spec.resources.limits.cpu in body should match
    x | {"image": "a", "resources": {"requests": {"memory": -1}}} | should be greater than or equal to 0
    x | {"image": "a", "state": "Sleeping"} | spec.state: Unsupported value
    a.dotted.name | {"image": "a"} | name must be a DNS label
    x | {"image": "a", "lifecycle": {"idleTimeout": "soon"}} | should match
"#;

#[tokio::test]
async fn crd_rules_reject_invalid_specs() {
    let api = sandboxes();
    for row in REFUSED.trim().lines() {
        let cells: Vec<_> = row.trim().split(" | ").collect();
        let sandbox = sandbox(cells[0], &serde_json::from_str(cells[1]).unwrap());
        let refused = message(api.create(&PostParams::default(), &sandbox).await);
        assert!(refused.contains(cells[2]), "{row}: {refused}");
    }
}

#[tokio::test]
async fn pool_size_is_bounded_also_by_its_scale() {
    let api = objects::<crds::SandboxPool>();
    let pool = |name: &str, replicas: i32| {
        object::<DynamicObject>(json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxPool",
            "metadata": {"name": name}, "spec": {"template": {"image": "i"}, "replicas": replicas},
        }))
    };
    api.add(&pool("p", 10_000)).await;
    for (replicas, limit) in [
        (-1, "greater than or equal to 0"),
        (10_001, "less than or equal to 10000"),
    ] {
        let refused = message(
            api.create(&PostParams::default(), &pool("q", replicas))
                .await,
        );
        assert!(refused.contains(limit), "{refused}");
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let refused = message(api.patch_scale("p", &PatchParams::default(), &scale).await);
        assert!(refused.contains(limit), "{refused}");
    }
    assert_eq!(api.get("p").await.unwrap().data["spec"]["replicas"], 10_000);
}
