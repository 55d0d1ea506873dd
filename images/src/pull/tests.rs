//! Pulls from a registry of this process into a store on disk.

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tar::{Builder, Header};

use super::*;
use crate::manifest::{OCI_INDEX, OCI_MANIFEST};
use crate::registry::fake::{FakeRegistry, response};

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    entries: 100,
};

/// Documents and blobs by path; a path that is missing is 404.
type Content = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

struct Fixture {
    _directory: tempfile::TempDir,
    fake: FakeRegistry,
    content: Content,
    puller: Puller,
}

fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(content), "size": content.len()})
}

impl Fixture {
    async fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: unpacking needs root");
            return None;
        }
        let content = Content::default();
        let served = Arc::clone(&content);
        let fake = FakeRegistry::start(move |path, _| match served.lock().get(path) {
            Some(content) => response(200, &[], content.clone()),
            None => response(404, &[], ""),
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let store = ImageStore::open(directory.path()).unwrap();
        Some(Self {
            puller: Puller::new(store, fake.registry(), LIMITS),
            _directory: directory,
            fake,
            content,
        })
    }

    fn add(&self, path: &str, content: &[u8]) {
        let path = format!("/v2/a/{path}");
        self.content.lock().insert(path, content.to_vec());
    }

    fn add_blob(&self, content: &[u8]) {
        self.add(&format!("blobs/{}", Digest::of(content)), content);
    }

    /// Adds an image; `change` edits its configuration and manifest.
    fn add_image(
        &self,
        tag: &str,
        layers: &[Vec<u8>],
        change: impl Fn(&mut Value, &mut Value),
    ) -> Vec<u8> {
        let diff_ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
        let mut config = json!({"architecture": Platform::here().architecture, "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let media_type = "application/vnd.oci.image.layer.v1.tar";
        let descriptors = layers.iter().map(|layer| descriptor(media_type, layer));
        let descriptors: Vec<Value> = descriptors.collect();
        let mut manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "layers": descriptors});
        change(&mut config, &mut manifest);
        let config = config.to_string().into_bytes();
        manifest["config"] = descriptor("application/vnd.oci.image.config.v1+json", &config);
        let manifest = manifest.to_string().into_bytes();
        for layer in layers {
            self.add_blob(layer);
        }
        self.add_blob(&config);
        self.add(&format!("manifests/{tag}"), &manifest);
        self.add(&format!("manifests/{}", Digest::of(&manifest)), &manifest);
        manifest
    }

    async fn pull(&self, tag: &str) -> Result<Arc<Image>, Arc<PullError>> {
        let reference = self.fake.reference(&format!("a:{tag}"));
        self.puller.pull(&reference, &Credentials::default()).await
    }

    /// Files in the folders of the store, by folder.
    fn left(&self) -> Vec<String> {
        let root = self.puller.store().layers();
        let root = root.parent().unwrap();
        let mut left = Vec::new();
        for folder in ["blobs", "layers", "images", "tags", "staging"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                left.push(format!("{folder}/{:?}", entry.unwrap().file_name()));
            }
        }
        left
    }
}

#[tokio::test]
async fn pull_unpacks_layers_once_and_names_the_image() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let layers = [layer(&[("a", "1"), ("b", "2")]), layer(&[("b", "3")])];
    fixture.add_image("1", &layers, |_, _| {});
    let image = fixture.pull("1").await.unwrap();
    let read = |path: &str| image.read(Path::new(path), 9).unwrap();
    assert_eq!(
        (read("a"), read("b"), image.bytes),
        (b"1".into(), b"3".into(), 3)
    );
    let before = fixture.fake.paths().len();
    fixture.pull("1").await.unwrap();
    let top = layer(&[("c", "4")]);
    fixture.add_image(
        "2",
        &[layers[0].clone(), layers[1].clone(), top.clone()],
        |_, _| {},
    );
    let second = fixture.pull("2").await.unwrap();
    assert_eq!(second.layers[1..], image.layers[..]);
    let paths = fixture.fake.paths().split_off(before);
    let blobs = paths.iter().filter(|path| path.contains("blobs")).count();
    assert_eq!(blobs, 2, "{paths:?}");
    let names: Vec<String> = fixture
        .puller
        .store()
        .list()
        .unwrap()
        .into_iter()
        .map(|image| image.reference)
        .collect();
    let host = &fixture.fake.host;
    assert_eq!(names, [format!("{host}/a:1"), format!("{host}/a:2")]);
}

#[tokio::test]
async fn concurrent_pulls_of_an_image_are_one() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.add_image("1", &[layer(&[("a", "1")])], |_, _| {});
    let pulls = (0..10).map(|_| fixture.pull("1"));
    for image in futures::future::join_all(pulls).await {
        image.unwrap();
    }
    assert_eq!(fixture.fake.paths().len(), 4);
}

#[tokio::test]
async fn index_gives_the_image_of_this_machine() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let other = fixture.add_image("other", &[layer(&[("a", "no")])], |_, _| {});
    let own = fixture.add_image("own", &[layer(&[("a", "yes")])], |_, _| {});
    let entry = |manifest: &[u8], architecture: &str| {
        let mut entry = descriptor(OCI_MANIFEST, manifest);
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    };
    let here = Platform::here().architecture;
    let entries = [entry(&other, "s390x"), entry(&own, &here)];
    let index = json!({"mediaType": OCI_INDEX, "manifests": entries}).to_string();
    fixture.add("manifests/multi", index.as_bytes());
    fixture.add(
        &format!("manifests/{}", Digest::of(index.as_bytes())),
        index.as_bytes(),
    );
    let image = fixture.pull("multi").await.unwrap();
    assert_eq!(image.read(Path::new("a"), 9).unwrap(), b"yes");
    assert_eq!(image.digest, Digest::of(&own));
}

#[tokio::test]
async fn refused_image_leaves_nothing() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let good = || layer(&[("a", "1")]);
    let wrong = Digest::of(b"");
    let bomb = layer(&[("zeros", &"0".repeat(2 << 20))]);
    fixture.add_image("diff", &[good()], |config, _| {
        config["rootfs"]["diff_ids"][0] = json!(wrong);
    });
    fixture.add_image("count", &[good()], |config, _| {
        config["rootfs"]["diff_ids"] = json!([]);
    });
    fixture.add_image("bomb", &[good(), bomb], |_, _| {});
    fixture.add_image("outside", &[good(), b"garbage".to_vec()], |_, _| {});
    fixture.add_image("many", &[good()], |_, manifest| {
        let one = manifest["layers"][0].clone();
        manifest["layers"] = json!(vec![one; 10_000]);
    });
    fixture.add_image("config", &[good()], |config, _| *config = json!("text"));
    for (tag, expected) in [
        ("diff", "the configuration of the image says sha256:e3b0"),
        ("count", "image has 1 layers, but its configuration names 0"),
        ("bomb", "files exceed the limit of 1048576 bytes"),
        ("outside", "archive ends too early"),
        ("many", "image has 10000 layers, the limit is 127"),
        ("config", "configuration of the image is not valid"),
        ("missing", "a:missing: not found"),
    ] {
        let error = fixture.pull(tag).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{tag}: {error}");
        assert_eq!(fixture.left(), Vec::<String>::new(), "{tag}");
    }
}

#[tokio::test]
async fn layer_without_its_record_is_unpacked_again() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let content = layer(&[("a", "1")]);
    let partial = fixture.puller.store().layer(&Digest::of(&content));
    std::fs::create_dir(&partial).unwrap();
    std::fs::write(partial.join("half"), "").unwrap();
    fixture.add_image("1", &[content], |_, _| {});
    let image = fixture.pull("1").await.unwrap();
    assert_eq!(image.read(Path::new("a"), 9).unwrap(), b"1");
    assert!(image.find(Path::new("half")).is_err());
}
