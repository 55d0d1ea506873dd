//! Unpacked images are equal to containerd's, file by file.

use std::path::Path;

use images::{Credentials, ImageStore, Limits, Puller, Registry, RegistrySettings};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};
use tests::binaries::is_root_or_skips;
use tests::containerd::{Containerd, LayerMount};
use tests::registry::{LocalRegistry, image_of, image_of_layers, small_root};
use tests::tree::{Listing, difference, listing};

/// Layer under construction.
struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn add(self, kind: EntryType, path: &str, mode: u32, content: &str) -> Self {
        self.add_as(kind, path, (mode, 0, 0), content, &[])
    }

    fn add_as(
        mut self,
        kind: EntryType,
        path: &str,
        (mode, uid, gid): (u32, u64, u64),
        content: &str,
        records: &[(&str, &str)],
    ) -> Self {
        let records = records.iter().map(|(key, value)| (*key, value.as_bytes()));
        self.0.append_pax_extensions(records).unwrap();
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_mtime(1_700_000_000);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        header.set_size(if is_link { 0 } else { content.len() as u64 });
        if is_link {
            self.0.append_link(&mut header, path, content).unwrap();
        } else {
            self.0
                .append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.add(EntryType::Regular, path, 0o644, content)
    }

    fn directory(self, path: &str, mode: u32) -> Self {
        self.add(EntryType::Directory, path, mode, "")
    }

    fn end(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// Two layers with every oddity.
fn odd_layers() -> Vec<Vec<u8>> {
    let long = format!("long/{}/{}", "n".repeat(120), "m".repeat(200));
    let attributes = [
        ("SCHILY.xattr.user.a", "b"),
        ("mtime", "1600000000.123456789"),
    ];
    let capability = (
        "SCHILY.xattr.security.capability",
        "\u{1}\0\0\u{2}\0\u{4}\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    );
    let base = Layer::new()
        .directory("./", 0o755)
        .directory("tmp", 0o1777)
        .directory("shared", 0o2775)
        .add_as(EntryType::Regular, "bin/setuid", (0o4755, 0, 0), "x", &[])
        .add_as(
            EntryType::Regular,
            "bin/capable",
            (0o755, 0, 0),
            "x",
            &[capability],
        )
        .add_as(
            EntryType::Regular,
            "home/user/file",
            (0o600, 1000, 1001),
            "own",
            &attributes,
        )
        .add_as(
            EntryType::Directory,
            "home/user",
            (0o700, 1000, 1001),
            "",
            &attributes,
        )
        .add_as(
            EntryType::Regular,
            "high",
            (0o644, 3_000_000, 4_000_000),
            "id",
            &[],
        )
        .add(EntryType::Symlink, "absolute", 0o777, "/bin/setuid")
        .add(EntryType::Symlink, "relative", 0o777, "../../outside")
        .add(EntryType::Link, "hard", 0o644, "home/user/file")
        .add(EntryType::Fifo, "fifo", 0o640, "")
        .file(&long, "long name")
        .file("unicode/\u{fc}\u{4e2d}", "text")
        .file("twice", "first")
        .file("twice", "second")
        .file("gone/a", "hidden")
        .file("opaque/old", "hidden")
        .file("opaque/kept", "hidden too")
        .file("replaced/by-file", "x")
        .file("becomes-directory", "x")
        .file("deep/er/file", "x");
    let top = Layer::new()
        .file("gone/.wh.a", "")
        .file(".wh.fifo", "")
        .directory("opaque", 0o755)
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/new", "new")
        .file("replaced", "now a file")
        .directory("becomes-directory", 0o711)
        .file("becomes-directory/x", "y")
        .file("home/user/second", "parent is of the layer below")
        .file("deep/er/.wh.file", "");
    vec![base.end(), top.end()]
}

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
