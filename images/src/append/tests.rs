use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::edit::{Edit, Edited, index};
use crate::manifest::{DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use crate::{Descriptor, Digest, Layer};

fn edit(manifest: &Value, config: &Value) -> Result<Edited, String> {
    let layer = Layer {
        digest: Digest::of(b"compressed"),
        diff_id: Digest::of(b"plain"),
        size: 10,
    };
    let labels = BTreeMap::from([("new".to_owned(), "1".to_owned())]);
    let edit = Edit {
        layer: &layer,
        labels: &labels,
        base_name: "r.example.com/runtime:lock",
        base_digest: Digest::of(b"parent"),
    };
    let bytes = |value: &Value| value.to_string().into_bytes();
    let edited = edit.image(&bytes(manifest), &bytes(config));
    edited.map_err(|error| error.to_string())
}

fn manifest(media_type: &str) -> Value {
    let blob = |size| json!({"mediaType": "x", "digest": Digest::of(b""), "size": size});
    json!({
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": blob(5),
        "layers": [blob(100)],
        "subject": {"kept": true},
    })
}

fn config() -> Value {
    json!({
        "architecture": "amd64",
        "config": {"Env": ["A=1"], "Labels": {"old": "0"}, "OnBuild": null},
        "history": [{"created_by": "base"}],
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"base")]},
        "vendor": {"kept": [1, 2]},
    })
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn layer_is_added_and_unknown_fields_stay() {
    let edited = edit(&manifest(OCI_MANIFEST), &config()).unwrap();
    let mut expected = config();
    let diff_ids = &mut expected["rootfs"]["diff_ids"];
    diff_ids
        .as_array_mut()
        .unwrap()
        .push(json!(Digest::of(b"plain")));
    let step = json!({"created": "1970-01-01T00:00:00Z", "created_by": "sandbox-operator append"});
    expected["history"].as_array_mut().unwrap().push(step);
    expected["config"]["Labels"]["new"] = json!("1");
    assert_eq!(parsed(&edited.config), expected);
    let mut expected = manifest(OCI_MANIFEST);
    expected["config"]["digest"] = json!(Digest::of(&edited.config));
    expected["config"]["size"] = json!(edited.config.len());
    expected["layers"].as_array_mut().unwrap().push(json!({
        "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
        "digest": Digest::of(b"compressed"),
        "size": 10,
    }));
    expected["annotations"] = json!({
        "org.opencontainers.image.base.name": "r.example.com/runtime:lock",
        "org.opencontainers.image.base.digest": Digest::of(b"parent"),
    });
    assert_eq!(parsed(&edited.manifest), expected);
    assert_eq!(edited.size, 110 + edited.config.len() as u64);
    assert_eq!(edit(&manifest(OCI_MANIFEST), &config()).unwrap(), edited);
}

#[test]
fn image_of_docker_stays_one() {
    let mut config = config();
    config.as_object_mut().unwrap().remove("history");
    config["config"] = json!(null);
    let edited = edit(&manifest(DOCKER_MANIFEST), &config).unwrap();
    let manifest = parsed(&edited.manifest);
    let layer = &manifest["layers"][1]["mediaType"];
    assert_eq!(layer, "application/vnd.docker.image.rootfs.diff.tar.gzip");
    assert_eq!(manifest["annotations"], Value::Null);
    let config = parsed(&edited.config);
    assert_eq!(config["history"], Value::Null);
    assert_eq!(config["config"], json!({"Labels": {"new": "1"}}));
}

#[test]
fn documents_of_the_wrong_shape_are_refused() {
    let broken = |field: &str| {
        let mut config = config();
        *config.pointer_mut(field).unwrap() = json!("text");
        edit(&manifest(OCI_MANIFEST), &config).unwrap_err()
    };
    for field in [
        "/config",
        "/config/Labels",
        "/rootfs",
        "/rootfs/diff_ids",
        "/history",
    ] {
        let name = field.rsplit('/').next().unwrap();
        assert_eq!(broken(field), format!("{name:?} is of the wrong type"));
    }
    assert!(edit(&json!([]), &config()).is_err());
    assert!(edit(&manifest(OCI_MANIFEST), &json!(7)).is_err());
}

#[test]
fn index_names_the_new_images_and_no_attestations() {
    let entry = |digest: Digest, os: &str| {
        json!({
            "mediaType": OCI_MANIFEST, "digest": digest, "size": 1,
            "platform": {"os": os, "architecture": "amd64"},
        })
    };
    let (old, attestation) = (Digest::of(b"old"), Digest::of(b"attestation"));
    let document = json!({
        "schemaVersion": 2, "mediaType": OCI_INDEX, "annotations": {"kept": "1"},
        "manifests": [entry(old, "linux"), entry(attestation, "unknown")],
    });
    let edited = edit(&manifest(OCI_MANIFEST), &config()).unwrap();
    let (digest, size) = (Digest::of(&edited.manifest), edited.manifest.len());
    let bytes = index(document.to_string().as_bytes(), &[(old, edited)]).unwrap();
    let mut expected = document.clone();
    let mut image = entry(digest, "linux");
    image["size"] = json!(size);
    expected["manifests"] = json!([image]);
    assert_eq!(parsed(&bytes), expected);
    let entries: Vec<Descriptor> = serde_json::from_value(document["manifests"].clone()).unwrap();
    assert!(entries[0].is_image() && !entries[1].is_image());
}
