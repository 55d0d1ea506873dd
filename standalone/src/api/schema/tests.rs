use super::*;

fn schema() -> Schema {
    Schema::from_document(json!({
        "type": "object", "required": ["spec"],
        "properties": {"spec": {
            "type": "object", "required": ["image"],
            "x-kubernetes-validations": [
                {"rule": "self.image != 'forbidden'", "message": "that image is not allowed"},
                {"rule": "self.image == oldSelf.image", "message": "image is immutable"}],
            "properties": {
                "image": {"type": "string", "minLength": 1, "maxLength": 20},
                "state": {"type": "string", "enum": ["Running", "Paused"], "default": "Running"},
                "replicas": {"type": "integer", "minimum": 0, "maximum": 5},
                "name": {"type": "string", "pattern": "^[a-z]+$"},
                "port": {"x-kubernetes-int-or-string": true},
                "env": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"],
                        "properties": {"name": {"type": "string"},
                        "value": {"type": "string", "default": ""}}}},
                "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "since": {"type": "string", "format": "date-time"}}}},
    }))
}

fn complaints(spec: &Value) -> Vec<String> {
    let causes = schema().check(&json!({"spec": spec}), None);
    causes
        .into_iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect()
}

#[test]
fn prune_removes_and_names_unknown_fields() {
    let mut object = json!({"apiVersion": "v1", "kind": "T", "metadata": {"name": "x"}, "extra": 1,
        "spec": {"image": "a", "foo": 1, "template": {"any": {"thing": 1}}, "labels": {"k": "v"},
            "env": [{"name": "A", "oops": 1}]}});
    let mut unknown = Vec::new();
    schema().prune(&mut object, &mut unknown);
    assert_eq!(unknown, ["extra", "spec.env[0].oops", "spec.foo"]);
    assert_eq!(
        object["spec"],
        json!({"image": "a", "template": {"any": {"thing": 1}}, "labels": {"k": "v"},
            "env": [{"name": "A"}]})
    );
    assert_eq!(object["metadata"]["name"], "x");
}

#[test]
fn defaults_fill_existing_levels() {
    let mut object = json!({"spec": {"image": "a", "env": [{"name": "A"}]}});
    schema().fill_defaults(&mut object);
    assert_eq!(object["spec"]["state"], "Running");
    assert_eq!(object["spec"]["env"][0]["value"], "");
}

#[test]
fn null_of_known_field_is_missing() {
    let spec = json!({"image": "a", "replicas": null, "state": null,
        "env": [{"name": "A", "value": null}]});
    let mut object = json!({"spec": spec});
    schema().fill_defaults(&mut object);
    let spec = &object["spec"];
    assert_eq!(spec.get("replicas"), None);
    assert_eq!(
        (&spec["state"], &spec["env"][0]["value"]),
        (&json!("Running"), &json!(""))
    );
}

#[test]
fn valid_values_pass() {
    let spec = json!({"image": "a", "state": "Paused", "replicas": 5, "port": "http",
        "since": "2026-01-01T00:00:00Z"});
    assert_eq!(complaints(&spec), [""; 0]);
}

#[test]
fn messages_match_cluster() {
    for row in [
        r"{} -> image: Required value",
        r#"{"image": 3} -> image: Invalid value: "integer": spec.image in body must be of type string: "integer""#,
        r#"{"image": ""} -> image: Invalid value: "": spec.image in body should be at least 1 chars long"#,
        r#"{"image": "aaaaaaaaaaaaaaaaaaaaa"} -> image: Too long: may not be more than 20 bytes"#,
        r#"{"image": "a", "state": "Off"} -> state: Unsupported value: "Off": supported values: "Running", "Paused""#,
        r#"{"image": "a", "replicas": 6} -> replicas: Invalid value: 6: spec.replicas in body should be less than or equal to 5"#,
        r#"{"image": "a", "name": "A"} -> name: Invalid value: "A": spec.name in body should match '^[a-z]+$'"#,
        r#"{"image": "a", "env": [{"name": "A"}, {"name": "A"}]} -> env[1]: Duplicate value: {"name":"A"}"#,
        r#"{"image": "a", "since": "x"} -> since: Invalid value: "x": spec.since in body must be of type date-time: "x""#,
    ] {
        let (spec, complaint) = row.split_once(" -> ").unwrap();
        let spec = serde_json::from_str(spec).unwrap();
        assert_eq!(complaints(&spec), [format!("spec.{complaint}")], "{spec}");
    }
    let forbidden = complaints(&json!({"image": "forbidden"}));
    let complaint = "spec: Invalid value: \"object\": that image is not allowed";
    assert_eq!(forbidden, [complaint]);
}

#[test]
fn update_is_compared_with_old_object() {
    let object = |spec: Value| json!({ "spec": spec });
    let old = object(json!({"image": "a"}));
    let faults = schema().check(&object(json!({"image": "b"})), Some(&old));
    let message = "Invalid value: \"object\": image is immutable";
    assert_eq!(faults[0].message, message);
    assert!(schema().check(&old, Some(&old)).is_empty());
    // A violation that exists already is accepted.
    let old = object(json!({"image": "a", "replicas": 9}));
    let new = object(json!({"image": "a", "replicas": 9, "state": "Paused"}));
    assert!(schema().check(&new, Some(&old)).is_empty());
}

#[test]
fn rules_accept_unchanged_violations() {
    let crd = crds::schema::all_crds()
        .into_iter()
        .find(|crd| crd.spec.names.plural == "sandboxes")
        .unwrap();
    let schema = Schema::new(crd.spec.versions[0].schema.as_ref());
    let sandbox = |size: &str, image: &str| {
        let spec = json!({"image": image, "state": "Running", "workspace": {"size": size}});
        json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"name": "a"}, "spec": spec})
    };
    let old = sandbox("10GB", "a");
    let faults = |new: &Value, old: Option<&Value>| {
        let causes = schema.check(new, old).into_iter();
        causes.map(|cause| cause.field).collect::<Vec<_>>()
    };
    let size = ["spec.workspace.size"];
    assert_eq!(faults(&old, None), size, "not accepted in a new object");

    let mut stopped = old.clone();
    stopped["spec"]["state"] = "Stopped".into();
    assert_eq!(faults(&stopped, Some(&old)), Vec::<String>::new());
    let mut reported = old.clone();
    reported["status"] = json!({"phase": "Failed"});
    assert_eq!(faults(&reported, Some(&old)), Vec::<String>::new());

    let changed = faults(&sandbox("20GB", "a"), Some(&old));
    assert!(changed.contains(&size[0].to_owned()), "{changed:?}");
    let mut other = stopped.clone();
    other["spec"]["resources"] = json!({"limits": {"cpu": "much"}});
    assert_eq!(faults(&other, Some(&old)), ["spec.resources.limits.cpu"]);
    other["spec"]["resources"]["limits"]["cpu"] = "+1".into();
    assert_eq!(faults(&other, Some(&old)), Vec::<String>::new());
}

#[test]
fn crds_of_the_product_use_only_supported_keywords() {
    const SUPPORTED: &str = "additionalProperties default description enum format items maxItems \
        maxLength maxProperties maximum minItems minLength minimum pattern properties required \
        title type x-kubernetes-int-or-string x-kubernetes-list-map-keys x-kubernetes-list-type \
        x-kubernetes-preserve-unknown-fields x-kubernetes-validations";
    fn visit(schema: &Value) {
        for (keyword, value) in schema.as_object().unwrap() {
            let is_supported = SUPPORTED.split_whitespace().any(|known| known == keyword);
            assert!(is_supported, "{keyword}: {value}");
            match keyword.as_str() {
                "properties" => value.as_object().unwrap().values().for_each(visit),
                "items" | "additionalProperties" => visit(value),
                "x-kubernetes-list-type" => assert!(value == "map" || value == "atomic"),
                "x-kubernetes-validations" => {
                    let mut rules = value.as_array().unwrap().iter();
                    assert!(rules.all(|rule| rule.get("reason").is_none()), "{value}");
                }
                "format" => {
                    // Of strings only date-time is checked; numbers have bounds.
                    assert!(
                        value == "date-time" || schema["type"] == "integer",
                        "{value}"
                    );
                }
                _ => {}
            }
        }
    }
    for version in crds::schema::all_crds()
        .iter()
        .flat_map(|crd| &crd.spec.versions)
    {
        visit(Schema::new(version.schema.as_ref()).document());
    }
}
