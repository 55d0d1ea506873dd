//! `POST /upload_file` with archives, honest and hostile (spec 2.5).

use std::fs::{self, Permissions};
use std::io::{Cursor, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{archive, detail};
use crate::world::{World, everybody};

#[test]
fn archives_are_unpacked() {
    for world in everybody() {
        let zip = archive(&[
            ("project/run.sh", 0o755, b"#!/bin/sh\n"),
            ("project/a/b/c.txt", 0o600, b"deep"),
            ("project/a..b", 0o644, b"dots"),
            ("project/empty/", 0o750, b""),
            ("project/suid", 0o4755, b""),
            ("./project//twice", 0o644, b"tidied"),
        ]);
        world.put("project/run.sh", b"old");
        let to = format!("{}/", world.root.display());
        let (status, body) = world.upload(
            &format!("?destination={to}&recursive=true"),
            "tmpabc.zip",
            &zip,
        );
        assert_eq!(status, 200, "{body}");
        let expected =
            format!(r#"{{"filename":"tmpabc.zip","destination":"{to}","recursive":true}}"#);
        assert_eq!(body, expected);
        for (name, mode, content) in [
            ("run.sh", 0o755, &b"#!/bin/sh\n"[..]),
            ("a/b/c.txt", 0o600, b"deep"),
            ("a..b", 0o644, b"dots"),
            ("suid", 0o755, b""),
            ("twice", 0o644, b"tidied"),
        ] {
            let path = world.path("project").join(name);
            assert_eq!(fs::read(&path).unwrap(), content, "{name}");
            let found = fs::metadata(&path).unwrap();
            assert_eq!(
                (found.mode() & 0o7777, found.uid()),
                (mode, world.uid),
                "12.16 {name}"
            );
        }
        let empty = fs::metadata(world.path("project/empty")).unwrap();
        assert_eq!((empty.is_dir(), empty.mode() & 0o7777), (true, 0o750));
        // 2.5: the archive itself is gone.
        assert_eq!(world.list("{}").1, "[\"project/\"]");
    }
}

#[test]
fn no_archive_escapes() {
    for world in everybody() {
        let outside = world.root.parent().unwrap().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o777)).unwrap();
        let outside_name = outside.join("abs").display().to_string();
        let target = outside.display().to_string();
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default();
        writer.add_symlink("out", &target, options).unwrap();
        writer.add_symlink("up", "../outside", options).unwrap();
        writer.add_symlink("in", "good", options).unwrap();
        writer.add_symlink("deep/in", "../good", options).unwrap();
        for name in [
            "out/planted",
            "up/planted",
            "../outside/planted",
            "a/../../outside/planted",
            &outside_name,
            "good",
        ] {
            writer.start_file(name, options).unwrap();
            writer.write_all(b"x").unwrap();
        }
        let zip = writer.finish().unwrap().into_inner();
        let query = format!("?destination={}/dest", world.root.display());
        let (status, body) = world.upload(&query, "evil.zip", &zip);
        assert_eq!(
            fs::read_dir(&outside).unwrap().count(),
            0,
            "{status} {body}"
        );
        // Links of the archive do not stand yet when files are written: those became directories.
        assert!(!world.path("dest/up").is_symlink());
        assert!(!world.path("dest/out").is_symlink());
        assert_eq!(fs::read(world.path("dest/good")).unwrap(), b"x");

        // A link that is already there is not followed either.
        symlink(&outside, world.path("dest/ready")).unwrap();
        let (status, body) = world.upload(
            &query,
            "evil.zip",
            &archive(&[("ready/planted", 0o644, b"x")]),
        );
        assert_eq!(
            (status, body),
            (
                500,
                detail(&format!(
                    "[Errno 20] Not a directory: '{}/dest/ready'",
                    world.root.display()
                ))
            )
        );
        fs::write(outside.join("file"), "kept").unwrap();
        symlink(outside.join("file"), world.path("dest/name")).unwrap();
        assert_eq!(
            world
                .upload(&query, "x.zip", &archive(&[("name", 0o644, b"x")]))
                .0,
            200
        );
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"kept");

        // Links that stay inside are kept (12.16).
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer.add_symlink("links/in", "../good", options).unwrap();
        writer
            .add_symlink("links/out", "../../outside", options)
            .unwrap();
        let zip = writer.finish().unwrap().into_inner();
        assert_eq!(world.upload(&query, "links.zip", &zip).0, 200);
        assert_eq!(
            fs::read_link(world.path("dest/links/in")).unwrap().to_str(),
            Some("../good")
        );
        assert!(world.path("dest/links/out").symlink_metadata().is_err());
    }
}

#[test]
fn bombs_and_damaged_archives_do_no_harm() {
    let world = World::new("root");
    let query = format!("?destination={}/dest", world.root.display());
    // 2 GiB of zeros in 2 MiB: refused by what it claims.
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    writer.start_file("small", options).unwrap();
    writer.write_all(b"x").unwrap();
    writer.start_file("zeros", options).unwrap();
    writer.write_all(&vec![0; 64 << 20]).unwrap();
    let mut bomb = writer.finish().unwrap().into_inner();
    let claim = (64u32 << 20).to_le_bytes();
    let directory = bomb
        .windows(4)
        .rposition(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    let size = directory
        + bomb[directory..]
            .windows(4)
            .position(|bytes| bytes == claim)
            .unwrap();
    bomb[size..size + 4].copy_from_slice(&(3u32 << 30).to_le_bytes());
    let (status, body) = world.upload(&query, "bomb.zip", &bomb);
    assert_eq!(status, 500);
    assert!(
        body.contains("more than 1073741824 bytes would come out of it"),
        "{body}"
    );
    assert_eq!(world.list("{\"path\":\"dest\"}").1, "[]");

    // Every byte of a small archive, damaged in turn: an answer each time, and no escape.
    let good = archive(&[
        ("a/b.txt", 0o644, b"hello hello hello hello"),
        ("c", 0o600, b"x"),
    ]);
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 0x41;
        let (status, _) = world.upload(&query, "bad.zip", &bad);
        assert!([200, 500].contains(&status), "{status} at {index}");
    }
    for length in 0..good.len() {
        let (status, _) = world.upload(&query, "cut.zip", &good[..length]);
        assert_eq!(status, 500, "cut at {length}");
    }
    assert_eq!(world.root.parent().unwrap().read_dir().unwrap().count(), 1);
    // The damage is told, and the half of a file is not left.
    let mut bad = archive(&[("text", 0o644, b"stored text")]);
    let at = bad.windows(4).position(|bytes| bytes == b"text").unwrap() + 4;
    bad[at] ^= 1;
    let query = format!("?destination={}/told", world.root.display());
    let (status, body) = world.upload(&query, "bad.zip", &bad);
    assert_eq!(status, 500);
    assert!(body.contains("is damaged"), "{body}");
    assert_eq!(world.list("{\"path\":\"told\"}").1, "[]");
}

#[test]
fn many_entries_and_huge_names_pass_or_are_refused() {
    let world = World::new("root");
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..20_000 {
        writer
            .start_file(
                format!("d{}/f{index}", index % 10),
                SimpleFileOptions::default(),
            )
            .unwrap();
    }
    let zip = writer.finish().unwrap().into_inner();
    let query = format!("?destination={}", world.root.display());
    assert_eq!(world.upload(&query, "many.zip", &zip).0, 200);
    assert_eq!(fs::read_dir(world.path("d3")).unwrap().count(), 2000);
    let long = format!("{}/x", "n".repeat(300));
    let (status, body) = world.upload(&query, "long.zip", &archive(&[(&long, 0o644, b"")]));
    assert_eq!(
        (status, body.contains("[Errno 36] File name too long")),
        (500, true),
        "{body}"
    );
}
