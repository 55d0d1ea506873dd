//! Unpacked images are equal to containerd's, file by file.

use std::path::Path;

use images::{Credentials, ImageStore, Limits, Puller, Registry, RegistrySettings};
use serde_json::{Value, json};
use tests::binaries::is_root_or_skips;
use tests::containerd::{Containerd, LayerMount};
use tests::registry::{LocalRegistry, image_of, image_of_layers, odd_layers, small_root};
use tests::tree::{Listing, difference, listing};

/// Directories that the layers of [`odd_layers`] leave out, or change without naming them. containerd
/// gives them, and each root, the time at which it unpacks.
const IMPLIED: [&str; 9] = [
    "",
    "bin",
    "deep",
    "deep/er",
    "gone",
    "home",
    "home/user",
    "long",
    "unicode",
];

fn forget_times(listing: &mut Listing) {
    for (path, line) in listing {
        let is_implied = IMPLIED.iter().any(|implied| path == Path::new(implied));
        let is_above_long = line.starts_with('4') && path.starts_with("long");
        if is_implied || is_above_long {
            let mut words: Vec<&str> = line.split(' ').collect();
            words[2] = "-";
            *line = words.join(" ");
        }
    }
}

/// Compares the image of `reference` as both have unpacked it.
async fn assert_equal(registry: &LocalRegistry, containerd: &mut Containerd, reference: &str) {
    let directory = tempfile::tempdir().unwrap();
    let settings = RegistrySettings {
        insecure: [registry.host()].into(),
        ..RegistrySettings::default()
    };
    let store = ImageStore::open(directory.path()).unwrap();
    let puller = Puller::new(store, Registry::new(&settings).unwrap(), Limits::default());
    let (name, anonymous) = (reference.parse().unwrap(), Credentials::default());
    let image = puller.pull(&name, &anonymous).await.unwrap();
    let ours = LayerMount::new(&image.layers);
    containerd.pull(reference);
    let theirs = containerd.mount(reference);
    let (mut ours, mut theirs) = (listing(&ours.path()).unwrap(), listing(&theirs).unwrap());
    forget_times(&mut ours);
    forget_times(&mut theirs);
    assert!(ours.len() > 10, "{ours:?}");
    let different = difference(&ours, &theirs);
    assert!(
        different.is_empty(),
        "{reference}:\n{}",
        different.join("\n")
    );
}

fn config() -> Value {
    json!({"Cmd": ["/bin/sh"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn unpacked_images_are_equal_to_those_of_containerd() {
    if !is_root_or_skips() {
        return;
    }
    let registry = LocalRegistry::start();
    let mut containerd = Containerd::start();
    let small = registry.push(image_of(small_root().path(), &config()).path(), "small:1");
    assert_equal(&registry, &mut containerd, &small).await;
    let odd = registry.push(image_of_layers(&odd_layers(), &config()).path(), "odd:1");
    assert_equal(&registry, &mut containerd, &odd).await;
    if Path::new("/usr/share/doc").exists() {
        let real = registry.push(
            image_of(Path::new("/usr/share/doc"), &config()).path(),
            "real:1",
        );
        assert_equal(&registry, &mut containerd, &real).await;
    }
}
