use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use tar::{Builder, Header};

use super::*;
use crate::copy::pack::pack;

/// An archive with entries that a well-behaved tar would not make.
fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        header.set_size(if is_link { 0 } else { content.len() as u64 });
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if is_link {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        header.set_cksum();
        builder
            .append(&header, if is_link { &[][..] } else { content.as_bytes() })
            .unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn entries_outside_of_the_source_end_the_copy() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("in");
    for name in [
        "../out",
        "/out",
        "s/../../out",
        "other/f",
        "s/a/../../../out",
    ] {
        let bytes = archive(&[(name, EntryType::Regular, "x")]);
        assert!(
            unpack(&bytes[..], &target, Some("s"), Some("n")).is_err(),
            "{name}"
        );
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn links_of_the_archive_are_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let (target, outside) = (root.path().join("in"), root.path().join("out"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "kept").unwrap();
    let out = outside.to_str().unwrap();
    let bytes = archive(&[
        ("s/absolute", EntryType::Symlink, out),
        ("s/up", EntryType::Symlink, "../../out"),
        ("s/device", EntryType::Char, ""),
        ("s/f", EntryType::Regular, "mine"),
    ]);
    let skipped = unpack(&bytes[..], &target, Some("s"), Some("n")).unwrap();
    assert_eq!(skipped.count, 3, "{skipped:?}");
    // A link that stays inside, and a file through it.
    let bytes = archive(&[
        ("s/here", EntryType::Symlink, "."),
        ("s/here/f", EntryType::Regular, "through a link"),
    ]);
    assert!(unpack(&bytes[..], &target, Some("s"), Some("n")).is_err());
    assert_eq!(fs::read_to_string(target.join("n/f")).unwrap(), "mine");
    // Links of the target are not followed either.
    symlink(&outside, target.join("n/old")).unwrap();
    let bytes = archive(&[("s/old/f", EntryType::Regular, "x")]);
    assert!(unpack(&bytes[..], &target, Some("s"), Some("n")).is_err());
    symlink(outside.join("f"), target.join("n/g")).unwrap();
    let bytes = archive(&[("s/g", EntryType::Regular, "new")]);
    unpack(&bytes[..], &target, Some("s"), Some("n")).unwrap();
    assert_eq!(fs::read_to_string(target.join("n/g")).unwrap(), "new");
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "kept");
}

#[test]
fn hard_links_lead_to_files_of_the_archive_only() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("in");
    fs::write(root.path().join("secret"), "secret").unwrap();
    let bytes = archive(&[
        ("s/f", EntryType::Regular, "x"),
        ("s/g", EntryType::Link, "s/f"),
        ("s/h", EntryType::Link, "../secret"),
        ("s/i", EntryType::Link, "/etc/passwd"),
    ]);
    let skipped = unpack(&bytes[..], &target, Some("s"), None).unwrap();
    assert_eq!(skipped.count, 2);
    let inode = |name: &str| fs::metadata(target.join(name)).unwrap().ino();
    assert_eq!(inode("f"), inode("g"));
}

#[test]
fn hard_link_does_not_take_a_symbolic_link_to_another_depth() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("in");
    let bytes = archive(&[
        ("s/a/b/l", EntryType::Symlink, "../../../out"),
        ("s/up", EntryType::Link, "s/a/b/l"),
    ]);
    let skipped = unpack(&bytes[..], &target, Some("s"), Some("n")).unwrap();
    assert_eq!(skipped.count, 1, "{skipped:?}");
    assert!(fs::symlink_metadata(target.join("n/up")).is_err());
}

#[test]
fn headers_of_an_archive_cannot_fill_memory_or_disk() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("in");
    for kind in [
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
    ] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(1 << 40);
        header.set_cksum();
        let endless = (&header.as_bytes()[..]).chain(io::repeat(b'a'));
        let error = unpack(endless, &target, None, None).unwrap_err();
        assert!(
            error.to_string().contains("exceeds 1048576 bytes"),
            "{error}"
        );
    }
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNUSparse);
    header.as_old_mut().name[..3].copy_from_slice(b"s/f");
    header.set_size(0);
    let sparse = header.as_gnu_mut().unwrap();
    sparse.set_real_size(1 << 40);
    sparse.sparse[0].set_offset(1 << 40);
    sparse.sparse[0].set_length(0);
    header.set_cksum();
    let error = unpack(&header.as_bytes()[..], &target, Some("s"), None).unwrap_err();
    assert!(error.to_string().contains("sparse"), "{error}");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn content_of_an_entry_that_is_left_out_has_no_limit() {
    let root = tempfile::tempdir().unwrap();
    let long = "x".repeat(2 << 20);
    let bytes = archive(&[
        ("s/device", EntryType::Char, &long),
        ("s/f", EntryType::Regular, &long),
        ("s/g", EntryType::Regular, "last"),
    ]);
    let skipped = unpack(&bytes[..], root.path(), Some("s"), None).unwrap();
    assert_eq!(skipped.count, 1);
    assert_eq!(fs::read_to_string(root.path().join("g")).unwrap(), "last");
    assert_eq!(fs::read_to_string(root.path().join("f")).unwrap(), long);
}

#[test]
fn link_targets_are_judged_by_depth() {
    let inside = |link: &str, target: &str| stays_inside(Path::new(link), Path::new(target));
    assert!(inside("a/b/l", "../x") && inside("a/l", "./x") && inside("l", "x/y"));
    assert!(!inside("l", "..") && !inside("a/l", "../..") && !inside("a/l", "/a"));
    // `x` may be a link to the root.
    assert!(!inside("a/b/l", "x/../.."));
}

#[test]
fn packed_tree_unpacks_to_the_same_tree() {
    let root = tempfile::tempdir().unwrap();
    let source = root.path().join("source");
    fs::create_dir_all(source.join("d/empty")).unwrap();
    for name in [
        "plain",
        "-dash",
        "new\nline",
        "quote\"'",
        "ümlaut",
        &"long".repeat(50),
    ] {
        fs::write(source.join(name), name).unwrap();
    }
    fs::set_permissions(source.join("plain"), fs::Permissions::from_mode(0o4755)).unwrap();
    symlink("plain", source.join("link")).unwrap();
    let mut bytes = Vec::new();
    assert!(pack(&mut bytes, &source, Some("s")).unwrap().is_empty());
    let skipped = unpack(&bytes[..], root.path(), Some("s"), Some("copy")).unwrap();
    assert_eq!(skipped, Skipped::default());
    let copy = root.path().join("copy");
    assert!(copy.join("d/empty").is_dir());
    assert_eq!(
        fs::read_link(copy.join("link")).unwrap(),
        Path::new("plain")
    );
    assert_eq!(
        fs::read_to_string(copy.join("new\nline")).unwrap(),
        "new\nline"
    );
    // Neither setuid nor less than the rights of the source.
    assert_eq!(
        fs::metadata(copy.join("plain")).unwrap().mode() & 0o7777,
        0o755
    );
    let mtime = |path: &Path| fs::metadata(path).unwrap().mtime();
    assert_eq!(mtime(&copy.join("plain")), mtime(&source.join("plain")));
}

proptest::proptest! {
    #[test]
    fn any_bytes_unpack_below_the_target_or_fail(bytes: Vec<u8>, at in 0_usize..600, value: u8) {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("in");
        let _ = unpack(&bytes[..], &target, None, None);
        let mut damaged = archive(&[("s/f", EntryType::Regular, "x"), ("s/l", EntryType::Symlink, "f")]);
        damaged[at] = value;
        let _ = unpack(&damaged[..], &target, None, None);
        proptest::prop_assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
