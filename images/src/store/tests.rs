use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::{Descriptor, ImageConfig};

struct Fixture {
    _directory: tempfile::TempDir,
    store: ImageStore,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&directory.path().join("store")).unwrap();
    Fixture {
        _directory: directory,
        store,
    }
}

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

impl Fixture {
    fn blob(&self, content: &[u8]) -> Digest {
        let digest = Digest::of(content);
        fs::write(self.store.blob(&digest), content).unwrap();
        digest
    }

    /// Adds an image with these layers, each with one file that has the layer's name as content.
    fn add(&self, name: &str, layers: &[&str]) -> Digest {
        let diff_ids: Vec<Digest> = layers.iter().map(|l| Digest::of(l.as_bytes())).collect();
        let config = json!({"rootfs": {"diff_ids": diff_ids}}).to_string();
        let chain_ids = ImageConfig::parse(config.as_bytes()).unwrap().chain_ids();
        for (chain_id, layer) in chain_ids.iter().zip(layers) {
            let path = self.store.layer(chain_id);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(layer), layer).unwrap();
        }
        let descriptor = |layer: &&str| Descriptor {
            media_type: String::new(),
            digest: self.blob(layer.as_bytes()),
            size: layer.len() as u64,
            platform: None,
            annotations: std::collections::BTreeMap::new(),
        };
        let manifest = self.blob(name.as_bytes());
        let record = ImageRecord {
            manifest,
            config: self.blob(config.as_bytes()),
            layers: layers.iter().map(descriptor).collect(),
            chain_ids,
            unpacked_bytes: layers.iter().map(|layer| layer.len() as u64).sum(),
        };
        self.store.add(&record).unwrap();
        self.store.set_tag(&reference(name), manifest).unwrap();
        manifest
    }

    fn names(&self) -> Vec<String> {
        let images = self.store.list().unwrap().into_iter();
        images.map(|image| image.reference).collect()
    }

    fn count(&self, directory: &str) -> usize {
        fs::read_dir(self.store.root.join(directory))
            .unwrap()
            .count()
    }
}

#[test]
fn sweep_keeps_layers_that_another_image_shares() {
    let fixture = fixture();
    fixture.add("a:1", &["base", "one"]);
    fixture.add("b:1", &["base", "two"]);
    assert!(fixture.store.remove(&reference("a:1")).unwrap());
    assert!(!fixture.store.remove(&reference("a:1")).unwrap());
    let freed = fixture.store.sweep().unwrap();
    assert_eq!(freed.images, 1);
    assert_eq!((fixture.count("layers"), fixture.count("blobs")), (2, 4));
    let image = fixture.store.find(&reference("b:1")).unwrap().unwrap();
    let read = |path: &str| image.read(Path::new(path), 100);
    assert_eq!(
        (read("/base").unwrap(), read("two").unwrap()),
        (b"base".into(), b"two".into())
    );
    assert_eq!(read("one").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(fixture.store.sweep().unwrap(), Freed::default());
}

#[test]
fn image_in_use_survives_removal_and_prune() {
    let fixture = fixture();
    fixture.add("a:1", &["one"]);
    fixture.add("b:1", &["two"]);
    let used = fixture.store.find(&reference("a:1")).unwrap().unwrap();
    assert!(fixture.store.list().unwrap()[0].in_use);
    fixture.store.remove(&reference("a:1")).unwrap();
    assert_eq!(fixture.store.prune().unwrap().images, 1);
    assert!(fixture.names().is_empty());
    assert_eq!(used.read(Path::new("one"), 9).unwrap(), b"one");
    drop(used);
    assert_eq!(fixture.store.sweep().unwrap().images, 1);
    assert_eq!((fixture.count("layers"), fixture.count("blobs")), (0, 0));
    assert_eq!(fixture.count("images"), 0);
}

#[test]
fn shrink_removes_images_that_were_used_longest_ago() {
    let fixture = fixture();
    for name in ["a:1", "b:1", "c:1"] {
        fixture.add(name, &[&name.repeat(50)]);
    }
    let old = std::time::SystemTime::UNIX_EPOCH;
    for (name, age) in [("a:1", 3), ("b:1", 1), ("c:1", 2)] {
        let tag = fixture.store.tag(&reference(name));
        let file = fs::File::options().write(true).open(tag).unwrap();
        file.set_modified(old + std::time::Duration::from_secs(age))
            .unwrap();
    }
    // Each takes 150 bytes unpacked and 150 as a blob.
    assert_eq!(fixture.store.bytes().unwrap(), 900);
    assert_eq!(fixture.store.shrink(900).unwrap(), Freed::default());
    assert_eq!(fixture.store.shrink(350).unwrap().images, 2);
    assert_eq!(fixture.names(), ["docker.io/library/a:1"]);
}

#[test]
fn leftovers_of_a_crash_are_swept() {
    let fixture = fixture();
    fixture.add("a:1", &["one"]);
    let staged = fixture.store.staging().join("layer");
    fs::create_dir_all(staged.join("etc")).unwrap();
    fs::write(staged.join("etc/passwd"), "12345").unwrap();
    fs::create_dir(fixture.store.layers().join("unnamed")).unwrap();
    fixture.blob(b"unnamed");
    let part = fixture.store.root.join("blobs/12.part");
    fs::write(&part, "part").unwrap();
    assert_eq!(fixture.store.sweep().unwrap().bytes, 12);
    assert!(!staged.exists());
    assert!(part.exists());
    assert_eq!((fixture.count("layers"), fixture.count("blobs")), (1, 4));
    let image = fixture.store.find(&reference("a:1")).unwrap();
    assert!(image.is_some());
}

#[test]
fn paths_are_found_as_an_overlay_shows_them() {
    let fixture = fixture();
    fixture.add("a:1", &["bottom", "top"]);
    let image = fixture.store.find(&reference("a:1")).unwrap().unwrap();
    let [top, bottom] = image.layers.as_slice() else {
        panic!("two layers");
    };
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::create_dir_all(bottom.join("usr/lib")).unwrap();
    fs::write(bottom.join("usr/lib/passwd"), "users").unwrap();
    fs::create_dir(bottom.join("etc")).unwrap();
    fs::write(bottom.join("etc/group"), "groups").unwrap();
    fs::create_dir(top.join("etc")).unwrap();
    symlink("../../usr/lib/passwd", top.join("etc/passwd")).unwrap();
    symlink(outside.path(), top.join("etc/host")).unwrap();
    symlink("loop", top.join("loop")).unwrap();
    symlink("/usr", top.join("usr2")).unwrap();
    fs::write(top.join("file"), "").unwrap();
    fs::create_dir(top.join("dir")).unwrap();
    symlink("/usr/lib", bottom.join("dir")).unwrap();
    let read = |path: &str| image.read(Path::new(path), 5);
    assert_eq!(read("/etc/passwd").unwrap(), b"users");
    assert_eq!(read("etc/group").unwrap(), b"group");
    assert_eq!(read("usr2/lib/../lib/passwd").unwrap(), b"users");
    for (path, place) in [
        ("/usr2/lib/new", "/usr/lib/new"),
        ("../dir/passwd", "/dir/passwd"),
        ("/etc/host/x", &format!("{}/x", outside.path().display())),
    ] {
        assert_eq!(image.resolve(Path::new(path)).unwrap(), Path::new(place));
    }
    let hidden = [
        "/dir/passwd",
        "/etc/host",
        "/file/x",
        "/etc",
        "/nothing",
        "/loop",
    ];
    for missing in hidden {
        assert!(read(missing).is_err(), "{missing}");
    }
}
