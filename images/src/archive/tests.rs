use tar::{Builder, EntryType, Header};

use super::*;

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    entries: 100,
};

struct Fixture {
    directory: tempfile::TempDir,
    store: ImageStore,
}

fn fixture() -> Option<Fixture> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: unpacking needs root");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&directory.path().join("store")).unwrap();
    Some(Fixture { directory, store })
}

/// Tar archive of files; content that begins with `->` makes a symbolic link.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = Header::new_ustar();
        header.set_mode(0o644);
        let link = content.strip_prefix(b"->");
        header.set_size(if link.is_some() {
            0
        } else {
            content.len() as u64
        });
        if let Some(target) = link {
            header.set_entry_type(EntryType::Symlink);
            let target = std::str::from_utf8(target).unwrap();
            builder.append_link(&mut header, path, target).unwrap();
        } else {
            builder.append_data(&mut header, path, *content).unwrap();
        }
    }
    builder.into_inner().unwrap()
}

/// Archive of `docker save`, whose second layer is a link to a file of another directory.
fn docker_archive(tags: &[&str]) -> Vec<u8> {
    let (base, top) = (tar(&[("a", b"1")]), tar(&[("b", b"2")]));
    let config = json!({"rootfs": {"diff_ids": [Digest::of(&base), Digest::of(&top)]}});
    let manifest = json!([{"Config": "c.json", "RepoTags": tags,
        "Layers": ["1/layer.tar", "2/layer.tar"]}]);
    tar(&[
        ("1/layer.tar", &base),
        ("3/layer.tar", &top),
        ("2/layer.tar", b"->../3/layer.tar"),
        ("c.json", config.to_string().as_bytes()),
        ("manifest.json", manifest.to_string().as_bytes()),
    ])
}

impl Fixture {
    fn load(&self, archive: &[u8], name: Option<&str>) -> Result<Vec<String>, LoadError> {
        let path = self.directory.path().join("archive");
        fs::write(&path, archive)?;
        let name = name.map(|name| name.parse::<Reference>().map_err(|_| LoadError::NoName));
        let name = name.transpose()?;
        let names = load(&self.store, &path, name.as_ref(), &LIMITS)?;
        Ok(names.iter().map(Reference::whole).collect())
    }

    fn save(&self, name: &str) -> Vec<u8> {
        let name: Reference = name.parse().unwrap();
        let image = self.store.find(&name).unwrap().unwrap();
        let mut saved = Vec::new();
        save(&self.store, &[(name, image)], &mut saved).unwrap();
        saved
    }
}

#[test]
fn saved_image_is_loaded_with_the_same_digest() {
    let (Some(first), Some(second)) = (fixture(), fixture()) else {
        return;
    };
    let names = first
        .load(&docker_archive(&["app:1", "app:2"]), None)
        .unwrap();
    assert_eq!(
        names,
        ["docker.io/library/app:1", "docker.io/library/app:2"]
    );
    let saved = first.save("app:1");
    assert_eq!(
        second.load(&saved, None).unwrap(),
        ["docker.io/library/app:1"]
    );
    let find = |fixture: &Fixture| fixture.store.find(&"app:1".parse().unwrap()).unwrap();
    let (before, after) = (find(&first).unwrap(), find(&second).unwrap());
    assert_eq!(before.digest, after.digest);
    let read = |path: &str| after.read(Path::new(path), 9).unwrap();
    assert_eq!((read("a"), read("b")), (b"1".into(), b"2".into()));
    assert_eq!(second.save("app:1"), saved);
    // The layout as a directory.
    let layout = second.directory.path().join("layout");
    tar::Archive::new(&saved[..]).unpack(&layout).unwrap();
    let third = fixture().unwrap();
    let names = load(&third.store, &layout, None, &LIMITS).unwrap();
    assert_eq!(names, ["app:1".parse().unwrap()]);
}

#[test]
fn nameless_image_gets_the_given_name() {
    let Some(fixture) = fixture() else { return };
    let archive = docker_archive(&[]);
    let error = fixture.load(&archive, None).unwrap_err();
    assert!(matches!(error, LoadError::NoName), "{error}");
    let names = fixture.load(&archive, Some("own:1")).unwrap();
    assert_eq!(names, ["docker.io/library/own:1"]);
}

#[test]
fn bad_archives_are_refused() {
    let Some(fixture) = fixture() else { return };
    let saved = {
        fixture.load(&docker_archive(&["app:1"]), None).unwrap();
        fixture.save("app:1")
    };
    fixture.store.prune().unwrap();
    let layer = tar(&[("b", b"2")]);
    let replaced = |with: &[u8]| {
        let at = saved
            .windows(layer.len())
            .position(|part| part == layer)
            .unwrap();
        let mut copy = saved.clone();
        copy[at..at + with.len()].copy_from_slice(with);
        copy
    };
    let mut corrupt = layer.clone();
    corrupt[512] = b'3';
    let missing = tar(&[("manifest.json", br#"[{"Config": "c", "Layers": []}]"#)]);
    let loop_ = tar(&[("manifest.json", b"->manifest.json")]);
    let outside = tar(&[("manifest.json", b"->../../../../etc/passwd")]);
    let name = docker_archive(&["NOT A NAME"]);
    let large = tar(&[("manifest.json", &vec![b' '; 2 << 20])]);
    let (index, digest) = (br#"{"manifests": []}"#, "has digest");
    for (archive, expected) in [
        (b"text".to_vec(), ""),
        (tar(&[("x", b"")]), "neither an archive"),
        (tar(&[("index.json", b"{}")]), "index.json is not valid"),
        (missing, "c is missing in the archive"),
        (loop_, "neither an archive"),
        (outside, "neither an archive"),
        (name, "\"NOT A NAME\" is not a name"),
        (large, "archive exceeds the limit of the size of a layer"),
        (replaced(&corrupt), digest),
    ] {
        let error = fixture.load(&archive, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(fixture.store.list().unwrap().is_empty());
    }
    assert!(
        fixture
            .load(&tar(&[("index.json", index)]), None)
            .unwrap()
            .is_empty()
    );
}
