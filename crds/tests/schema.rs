//! Generated CRDs: no drift from the types, and limits that Kubernetes demands.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::path::Path;

use serde_json::Value;

fn schemas() -> Vec<(String, Value)> {
    let crds = crds::schema::all_crds().into_iter();
    crds.map(|crd| {
        let kind = crd.spec.names.kind.clone();
        (
            kind,
            serde_json::to_value(&crd.spec.versions[0].schema).unwrap(),
        )
    })
    .collect()
}

/// Calls `visit` with every schema node and its path.
fn walk(path: &str, node: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, node);
    if let Some(properties) = node["properties"].as_object() {
        for (name, property) in properties {
            walk(&format!("{path}.{name}"), property, visit);
        }
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[key].is_object() {
            walk(&format!("{path}{suffix}"), &node[key], visit);
        }
    }
}

#[test]
fn manifests_are_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
    for (file, yaml) in crds::schema::manifests().unwrap() {
        let path = directory.join(&file);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == yaml,
            "{file} is out of date: run `make generate`"
        );
    }
}

#[test]
fn spec_lists_and_strings_are_bounded() {
    let mut unbounded = Vec::new();
    for (kind, schema) in schemas() {
        let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
        walk(&format!("{kind}.spec"), spec, &mut |path, node| {
            let bounded = match node["type"].as_str() {
                Some("array") => node["maxItems"].is_number(),
                Some("string") => {
                    node["maxLength"].is_number()
                        || node["enum"].is_array()
                        || node["format"] == "date-time"
                }
                Some("object") if node["additionalProperties"].is_object() => {
                    node["maxProperties"].is_number()
                }
                _ => true,
            };
            if !bounded {
                unbounded.push(path.to_owned());
            }
        });
    }
    assert_eq!(unbounded, Vec::<String>::new());
}

#[test]
fn named_lists_are_maps() {
    let mut lists = Vec::new();
    for (kind, schema) in schemas() {
        walk(&kind, &schema["openAPIV3Schema"], &mut |path, node| {
            if node["x-kubernetes-list-type"] == "map" {
                lists.push(format!("{path} by {}", node["x-kubernetes-list-map-keys"]));
            }
        });
    }
    insta::assert_yaml_snapshot!(lists);
}

#[test]
fn defaults_match_snapshot() {
    let mut defaults = Vec::new();
    for (kind, schema) in schemas() {
        walk(&kind, &schema["openAPIV3Schema"], &mut |path, node| {
            if let Some(default) = node.get("default") {
                defaults.push(format!("{path} = {default}"));
            }
        });
    }
    insta::assert_yaml_snapshot!(defaults);
}

/// `kubectl explain` shows the descriptions.
#[test]
fn every_field_has_a_description() {
    let mut silent = Vec::new();
    for (kind, schema) in schemas() {
        walk(&kind, &schema["openAPIV3Schema"], &mut |path, node| {
            let own = !path.ends_with("[]") && !path.ends_with("{}");
            if own && node["description"].as_str().is_none_or(str::is_empty) {
                silent.push(path.to_owned());
            }
        });
    }
    assert_eq!(silent, Vec::<String>::new());
}
