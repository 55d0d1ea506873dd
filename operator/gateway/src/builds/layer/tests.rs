use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use tar::{Builder, Header};
use tempfile::NamedTempFile;

use super::super::context::{self, tests::encode};
use super::*;

const OWNER: Owner = Owner {
    uid: 1000,
    gid: 1001,
};

type Tar = Builder<Vec<u8>>;

fn add(tar: &mut Tar, kind: EntryType, path: &str, mode: u32, content: &str) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(77);
    header.set_uid(501);
    let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
    if is_link {
        header.set_size(0);
        tar.append_link(&mut header, path, content).unwrap();
    } else {
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
}

/// Path, mode, and content or link target.
type Written = (String, u32, String);

/// The layer of a context, and its entries in their order.
fn written(fill: impl FnOnce(&mut Tar)) -> (Layer, Vec<Written>) {
    let (layer, target) = write_layer(fill);
    let layer = layer.unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(target.reopen().unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header().clone();
        let ids = (header.uid().unwrap(), header.gid().unwrap());
        assert_eq!((ids, header.mtime().unwrap()), ((1000, 1001), 0));
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        if let Some(link) = entry.link_name_bytes() {
            text = String::from_utf8(link.into_owned()).unwrap();
        }
        (path, header.mode().unwrap(), text)
    });
    (layer, entries.collect())
}

fn write_layer(fill: impl FnOnce(&mut Tar)) -> (Result<Layer, LayerError>, NamedTempFile) {
    let mut tar = Builder::new(Vec::new());
    add(
        &mut tar,
        EntryType::Regular,
        "Dockerfile",
        0o644,
        "FROM a\n",
    );
    fill(&mut tar);
    let tar = encode(&tar.into_inner().unwrap());
    let context = context::read(tar.as_bytes(), true).unwrap();
    let target = NamedTempFile::new().unwrap();
    let layer = write(&context.files.unwrap(), OWNER, target.path());
    (layer, target)
}

/// A context as a client sends it.
fn program(tar: &mut Tar) {
    let (directory, file) = (EntryType::Directory, EntryType::Regular);
    add(tar, directory, "code", 0o755, "");
    add(tar, directory, "code/openhands", 0o750, "");
    add(tar, file, "code/openhands/__init__.py", 0o644, "one");
    add(
        tar,
        EntryType::Link,
        "code/openhands/copy.py",
        0o644,
        "code/openhands/z.py",
    );
    add(
        tar,
        EntryType::Symlink,
        "code/openhands/lock",
        0o777,
        "../poetry.lock",
    );
    add(tar, directory, "code/openhands/sub", 0o755, "");
    add(tar, file, "code/openhands/sub/__init__.py", 0o755, "two");
    add(tar, file, "code/openhands/z.py", 0o600, "three");
    add(tar, file, "code/poetry.lock", 0o644, "lock");
    add(tar, file, "elsewhere", 0o644, "not part of the program");
}

#[test]
fn program_replaces_that_of_the_parent() {
    let (layer, entries) = written(program);
    let entries: Vec<_> = entries
        .iter()
        .map(|(path, mode, text)| (&**path, *mode, &**text))
        .collect();
    let code = "openhands/code";
    let expected = [
        ("openhands", 0o755, ""),
        (code, 0o755, ""),
        (&*format!("{code}/openhands"), 0o750, ""),
        (&*format!("{code}/openhands/.wh..wh..opq"), 0o400, ""),
        (&*format!("{code}/openhands/__init__.py"), 0o777, "one"),
        (&*format!("{code}/openhands/lock"), 0o777, "../poetry.lock"),
        (&*format!("{code}/openhands/sub"), 0o755, ""),
        (&*format!("{code}/openhands/sub/__init__.py"), 0o755, "two"),
        (&*format!("{code}/openhands/z.py"), 0o600, "three"),
        (&*format!("{code}/poetry.lock"), 0o644, "lock"),
        (
            &*format!("{code}/openhands/copy.py"),
            0o777,
            &*format!("{code}/openhands/z.py"),
        ),
    ];
    assert_eq!(entries, expected);
    assert_eq!(written(program).0, layer);
}

/// Some runtimes reject layers that name a path twice.
#[test]
fn path_that_is_sent_twice_is_written_once() {
    let (_, entries) = written(|tar| {
        program(tar);
        add(tar, EntryType::Directory, "code/openhands", 0o700, "");
        add(tar, EntryType::Regular, "code/poetry.lock", 0o644, "newer");
    });
    let mut counts = BTreeMap::<_, usize>::new();
    for (path, _, _) in &entries {
        *counts.entry(path).or_default() += 1;
    }
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    let lock = entries
        .iter()
        .find(|(path, _, _)| path.ends_with("poetry.lock"));
    assert_eq!(lock.unwrap().2, "newer");
}

#[test]
fn paths_that_would_do_harm_are_refused() {
    type Fill = fn(&mut Tar);
    let cases: [(Fill, &str); 6] = [
        (|_| {}, "has no directory \"code\""),
        (
            |tar| add(tar, EntryType::Regular, "code/.wh.openhands", 0o644, ""),
            ".wh.openhands",
        ),
        (
            |tar| add(tar, EntryType::Regular, "code/missing/a", 0o644, ""),
            "missing/a",
        ),
        (
            |tar| add(tar, EntryType::Link, "code/l", 0o644, "Dockerfile"),
            "code/l",
        ),
        (
            |tar| add(tar, EntryType::Link, "code/l", 0o644, "code/gone"),
            "code/l",
        ),
        (
            |tar| {
                add(tar, EntryType::Symlink, "code/l", 0o777, "openhands");
                add(tar, EntryType::Regular, "code/l/a", 0o644, "");
            },
            "code/l/a",
        ),
    ];
    for (fill, text) in cases {
        let error = write_layer(fill).0.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
