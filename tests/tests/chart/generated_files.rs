//! Copies and renders that lie in the repository are what they are made from. `make generate` writes
//! them.

use serde_json::Value;

use tests::cli_tools::{helm, text};

#[test]
fn chart_has_the_crds_of_the_manifests() {
    for plural in [
        "sandboxes",
        "sandboxsnapshots",
        "sandboxpools",
        "imagebuilds",
    ] {
        let name = format!("{plural}.yaml");
        let ours = text(&format!("charts/sandbox-operator-crds/files/{name}"));
        let same = ours == text(&format!("manifests/crds/{name}"));
        assert!(same, "{name} of the chart is old: run `make generate`");
    }
}

#[test]
fn every_reason_is_documented_in_operations() {
    let crd: Value = serde_yaml::from_str(&text("manifests/crds/sandboxes.yaml")).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let reasons = &schema["properties"]["status"]["properties"]["reason"]["enum"];
    let document = text("docs/operations.md");
    let reasons: Vec<_> = reasons
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(reasons.len() > 10);
    for reason in reasons {
        let known = reason == "Ready" || document.contains(&format!("`{reason}`"));
        assert!(known, "docs/operations.md does not know {reason}");
    }
}

/// `manifests/install.yaml` is the chart with `manifests/install.values.yaml`.
pub(crate) fn the_manifests_are_the_rendered_chart() {
    let template = "template sandbox-operator charts/sandbox-operator --namespace=sandbox-operator \
        --values=manifests/install.values.yaml --skip-tests";
    let rendered = helm(&template.split_whitespace().collect::<Vec<_>>());
    let manifest = text("manifests/install.yaml");
    let (_, objects) = manifest.split_once("\n---\n").unwrap();
    assert!(
        rendered == format!("---\n{objects}"),
        "manifests/install.yaml is old: run `make generate`"
    );
}
