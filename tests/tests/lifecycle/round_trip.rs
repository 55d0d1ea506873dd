//! Objects that the API server accepts can be read and written back. Otherwise a client that reads,
//! changes and writes an object fails at a field that it never touched.

use crds::{Sandbox, SandboxPool};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tests::test_cluster::{NAMESPACE, SeededRng, TestCluster};

/// Objects of each kind.
const OBJECTS: u64 = 300;

/// A value that a schema accepts, as odd as it may be.
fn value(schema: &Value, rng: &mut SeededRng) -> Value {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> = words.iter().filter(|word| !word.is_null()).collect();
        return rng.one_of(&words).clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        let numbers = [0_i64, 1, 4, 2_147_483_648, 8_589_934_592];
        let texts = ["250m", "2Gi", "1e3", "25%", ""].map(Value::from);
        let all: Vec<_> = numbers.map(Value::from).into_iter().chain(texts).collect();
        return all[index(all.len(), rng)].clone();
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, rng),
        Some("array") => list(schema, rng),
        Some("string") => text(schema, rng).into(),
        Some("integer") => integer(schema, rng).into(),
        Some("number") => [json!(1), json!(0.5), json!(2.0), json!(64)][index(4, rng)].clone(),
        Some("boolean") => rng.percent(50).into(),
        other => panic!("no values of type {other:?} are known"),
    }
}

fn index(length: usize, rng: &mut SeededRng) -> usize {
    usize::try_from(rng.below(length as u64)).unwrap()
}

fn object(schema: &Value, rng: &mut SeededRng) -> Value {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return json!({"any": [1, 1.5, "text", null, {"deep": true}]});
    }
    let mut fields = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array();
        let required = required.is_some_and(|all| all.contains(&json!(name)));
        if required || rng.percent(40) {
            fields.insert(name.clone(), value(field, rng));
        } else if rng.percent(10) {
            // The same as an absent one.
            fields.insert(name.clone(), Value::Null);
        }
    }
    let more = &schema["additionalProperties"];
    if more.is_object() {
        for name in ["cpu", "memory", "example.com/gpu"] {
            fields.insert(name.into(), value(more, rng));
        }
    }
    Value::Object(fields)
}

/// Keys of lists that are maps are kept apart by their place.
fn list(schema: &Value, rng: &mut SeededRng) -> Value {
    let least = schema["minItems"].as_u64().unwrap_or(0);
    let mut items = Vec::new();
    for place in 0..least.max(rng.below(4)) {
        let mut item = value(&schema["items"], rng);
        if schema["x-kubernetes-list-type"] == "map" {
            item["name"] = format!("name-{place}").into();
        }
        items.push(item);
    }
    Value::Array(items)
}

fn text(schema: &Value, rng: &mut SeededRng) -> String {
    match schema["pattern"].as_str() {
        None => ["a", "debian:12", "ä, ß und \u{1f980}"][index(3, rng)].into(),
        Some("^/" | "^/.") => "/work space".into(),
        Some("^[a-z]([-a-z0-9]*[a-z0-9])?$") => "runtime".into(),
        Some("^[a-z][-_a-z0-9]*(:[a-z0-9]+(,[a-z0-9]+)*)?$") => "browser:view,cdp".into(),
        Some(pattern) if pattern.ends_with("(ms|s|m|h))+$") => duration(rng),
        Some(pattern) => panic!("no texts of the pattern {pattern} are known"),
    }
}

fn duration(rng: &mut SeededRng) -> String {
    let mut text = String::new();
    for _ in 0..=rng.below(2) {
        let numbers = [
            "0",
            "1",
            "000000059",
            "999999999",
            "0.5",
            "0.0000001",
            "1.25",
        ];
        text.push_str(rng.one_of(&numbers));
        text.push_str(rng.one_of(&["ms", "s", "m", "h"]));
    }
    text
}

fn integer(schema: &Value, rng: &mut SeededRng) -> i64 {
    // They stand in the schema as 0.0.
    let bound = |name: &str, default| {
        let number = schema[name].as_f64().map(|n| format!("{n:.0}"));
        number.map_or(default, |number| number.parse().unwrap())
    };
    let (least, most) = (bound("minimum", 0), bound("maximum", i64::from(i32::MAX)));
    [least, most, least + (most - least) / 2][index(3, rng)]
}

/// Creates objects as the schema allows, and writes each back as it was read.
async fn round_trips<K>(cluster: &TestCluster, seed: u64)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let mut all = crds::schema::all_crds().into_iter();
    let definition = all.find(|crd| crd.spec.names.kind == K::kind(&()));
    let schema = serde_json::to_value(definition).unwrap();
    let schema = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let kind = ApiResource::erase::<K>(&());
    let raw = Api::<DynamicObject>::namespaced_with(cluster.observer.clone(), NAMESPACE, &kind);
    let (typed, params) = (cluster.api_of::<K>(), PostParams::default());
    let (mut rng, mut accepted) = (SeededRng::new(seed), 0);
    for number in 0..OBJECTS {
        let name = format!("o{number}");
        let spec = value(schema, &mut rng);
        let object = DynamicObject::new(&name, &kind).data(json!({"spec": spec}));
        // The rules that tie fields together refuse some of them.
        if raw.create(&params, &object).await.is_err() {
            continue;
        }
        accepted += 1;
        let read = typed.get(&name).await;
        let read = read.unwrap_or_else(|error| panic!("cannot be read: {error}: {spec}"));
        let written = typed.replace(&name, &params, &read).await;
        let written = written.unwrap_or_else(|error| panic!("refused: {error}: {spec}"));
        let said = |object: &K| serde_json::to_value(object).unwrap()["spec"].clone();
        assert_eq!(said(&written), said(&read), "{spec}");
        raw.delete(&name, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }
    // Of pools most are rejected: source, persistence, workspace and prestart depend on each other.
    assert!(accepted * 8 > OBJECTS, "only {accepted} were accepted");
}

#[tokio::test(start_paused = true)]
async fn accepted_sandbox_round_trips() {
    round_trips::<Sandbox>(&TestCluster::without_controller(), 1).await;
}

#[tokio::test(start_paused = true)]
async fn accepted_pool_round_trips() {
    round_trips::<SandboxPool>(&TestCluster::without_controller(), 2).await;
}
