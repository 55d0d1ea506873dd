//! Generated CRDs: no drift from the types, and limits that Kubernetes demands.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::path::Path;

use serde_json::Value;

/// Collects what `find` returns for every node of every schema, with the path of the node.
fn collect(find: impl Fn(&str, &Value) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for crd in crds::schema::all_crds() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        let kind = &crd.spec.names.kind;
        walk(kind, &schema["openAPIV3Schema"], &mut |path, node| {
            found.extend(find(path, node));
        });
    }
    found
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
    let unbounded = collect(|path, node| {
        let is_bounded = match node["type"].as_str() {
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
        let of_spec = path.split(['.', '[', '{']).nth(1) == Some("spec");
        (of_spec && !is_bounded).then(|| path.to_owned())
    });
    assert_eq!(unbounded, [""; 0]);
}

#[test]
fn named_lists_are_maps() {
    let lists = collect(|path, node| {
        let is_map = node["x-kubernetes-list-type"] == "map";
        is_map.then(|| format!("{path} by {}", node["x-kubernetes-list-map-keys"]))
    });
    insta::assert_yaml_snapshot!(lists);
}

#[test]
fn defaults_match_snapshot() {
    let defaults = collect(|path, node| {
        let default = node.get("default")?;
        Some(format!("{path} = {default}"))
    });
    insta::assert_yaml_snapshot!(defaults);
}

/// `kubectl explain` shows the descriptions.
#[test]
fn every_field_has_a_description() {
    let silent = collect(|path, node| {
        let own = !path.ends_with("[]") && !path.ends_with("{}");
        let is_silent = node["description"].as_str().is_none_or(str::is_empty);
        (own && is_silent).then(|| path.to_owned())
    });
    assert_eq!(silent, [""; 0]);
}
