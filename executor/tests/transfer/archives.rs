//! `POST /upload_file` with valid and hostile archives (`docs/specs/executor.md`, section 2.5).

use std::fs;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::symlink;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{archive, detail};
use crate::client::{mode_and_owner, set_mode};
use crate::fixture::{ServerFixture, all_users};

#[test]
fn archives_are_unpacked() {
    for fixture in all_users() {
        let zip = archive(&[
            ("project/run.sh", 0o755, b"#!/bin/sh\n"),
            ("project/a/b/c.txt", 0o600, b"deep"),
            ("project/a..b", 0o644, b"dots"),
            ("project/empty/", 0o750, b""),
            ("project/suid", 0o4755, b""),
            ("./project//twice", 0o644, b"tidied"),
        ]);
        fixture.put("project/run.sh", b"old");
        let to = format!("{}/", fixture.root.display());
        let query = format!("?destination={to}&recursive=true");
        let expected =
            format!(r#"{{"filename":"tmpabc.zip","destination":"{to}","recursive":true}}"#);
        assert_eq!(fixture.upload(&query, "tmpabc.zip", &zip), (200, expected));
        for (name, mode, content) in [
            ("run.sh", 0o755, &b"#!/bin/sh\n"[..]),
            ("a/b/c.txt", 0o600, b"deep"),
            ("a..b", 0o644, b"dots"),
            ("suid", 0o755, b""),
            ("twice", 0o644, b"tidied"),
        ] {
            let path = fixture.path("project").join(name);
            assert_eq!(fs::read(&path).unwrap(), content, "{name}");
            assert_eq!(mode_and_owner(&path), (mode, fixture.uid()), "12.16 {name}");
        }
        let empty = fixture.path("project/empty");
        assert_eq!((empty.is_dir(), mode_and_owner(&empty).0), (true, 0o750));
        // 2.5: the archive itself is not kept.
        assert_eq!(fixture.list("{}").1, "[\"project/\"]");
    }
}

#[test]
fn archive_is_not_unpacked_outside_its_destination() {
    for fixture in all_users() {
        let outside = fixture.root.parent().unwrap().join("outside");
        fs::create_dir(&outside).unwrap();
        set_mode(&outside, 0o777);
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
        let query = format!("?destination={}/dest", fixture.root.display());
        let (status, body) = fixture.upload(&query, "evil.zip", &zip);
        let planted = fs::read_dir(&outside).unwrap().count();
        assert_eq!(planted, 0, "{status} {body}");
        // Links are created after the files: `up` and `out` have become directories.
        assert!(!fixture.path("dest/up").is_symlink());
        assert!(!fixture.path("dest/out").is_symlink());
        assert_eq!(fs::read(fixture.path("dest/good")).unwrap(), b"x");

        // An existing link is not followed either.
        symlink(&outside, fixture.path("dest/ready")).unwrap();
        let planted = archive(&[("ready/planted", 0o644, b"x")]);
        let error = fixture.fill("[Errno 20] Not a directory: '{}/dest/ready'");
        let answer = fixture.upload(&query, "evil.zip", &planted);
        assert_eq!(answer, (500, detail(&error)));
        fs::write(outside.join("file"), "kept").unwrap();
        symlink(outside.join("file"), fixture.path("dest/name")).unwrap();
        let named = archive(&[("name", 0o644, b"x")]);
        assert_eq!(fixture.upload(&query, "x.zip", &named).0, 200);
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"kept");

        // Links that stay inside are kept (12.16).
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer.add_symlink("links/in", "../good", options).unwrap();
        writer
            .add_symlink("links/out", "../../outside", options)
            .unwrap();
        let zip = writer.finish().unwrap().into_inner();
        assert_eq!(fixture.upload(&query, "links.zip", &zip).0, 200);
        let kept = fs::read_link(fixture.path("dest/links/in")).unwrap();
        assert_eq!(kept.to_str(), Some("../good"));
        assert!(fixture.path("dest/links/out").symlink_metadata().is_err());
    }
}

/// Offset of the last entry of the central directory.
fn central_directory(zip: &[u8]) -> usize {
    let mut entries = zip.windows(4);
    entries.rposition(|bytes| bytes == b"PK\x01\x02").unwrap()
}

#[test]
fn bombs_and_damaged_archives_are_rejected() {
    let fixture = ServerFixture::new("root");
    let query = format!("?destination={}/dest", fixture.root.display());
    // Claims 3 GiB: rejected by its claim.
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    writer.start_file("small", options).unwrap();
    writer.write_all(b"x").unwrap();
    writer.start_file("zeros", options).unwrap();
    writer.write_all(&vec![0; 64 << 20]).unwrap();
    let mut bomb = writer.finish().unwrap().into_inner();
    let claim = (64u32 << 20).to_le_bytes();
    let directory = central_directory(&bomb);
    let mut sizes = bomb[directory..].windows(4);
    let size = directory + sizes.position(|bytes| bytes == claim).unwrap();
    bomb[size..size + 4].copy_from_slice(&(3u32 << 30).to_le_bytes());
    let (status, body) = fixture.upload(&query, "bomb.zip", &bomb);
    assert_eq!(status, 500);
    let reason = "more than 1073741824 bytes would come out of it";
    assert!(body.contains(reason), "{body}");
    assert_eq!(fixture.list("{\"path\":\"dest\"}").1, "[]");

    // Each byte of a small archive damaged in turn: a response each time, and nothing outside.
    let good = archive(&[
        ("a/b.txt", 0o644, b"hello hello hello hello"),
        ("c", 0o600, b"x"),
    ]);
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 0x41;
        let (status, _) = fixture.upload(&query, "bad.zip", &bad);
        assert!([200, 500].contains(&status), "{status} at {index}");
    }
    for length in 0..good.len() {
        let (status, _) = fixture.upload(&query, "cut.zip", &good[..length]);
        assert_eq!(status, 500, "cut at {length}");
    }
    let parent = fixture.root.parent().unwrap();
    assert_eq!(parent.read_dir().unwrap().count(), 1);
    // The damage is reported, and no partial file is left.
    let mut bad = archive(&[("text", 0o644, b"stored text")]);
    let at = bad.windows(4).position(|bytes| bytes == b"text").unwrap() + 4;
    bad[at] ^= 1;
    let query = format!("?destination={}/told", fixture.root.display());
    let (status, body) = fixture.upload(&query, "bad.zip", &bad);
    assert_eq!(status, 500);
    assert!(body.contains("is damaged"), "{body}");
    assert_eq!(fixture.list("{\"path\":\"told\"}").1, "[]");
}

#[test]
fn every_method_with_bounded_memory_is_unpacked() {
    let fixture = ServerFixture::new("root");
    let query = format!("?destination={}", fixture.root.display());
    let text = "text ".repeat(100_000);
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, method) in [
        ("d", CompressionMethod::Deflated),
        ("b", CompressionMethod::Bzip2),
    ] {
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(name, options).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    let zip = writer.finish().unwrap().into_inner();
    assert_eq!(fixture.upload(&query, "x.zip", &zip).0, 200);
    for name in ["d", "b"] {
        assert!(
            fs::read(fixture.path(name)).unwrap() == text.as_bytes(),
            "{name}"
        );
    }
}

#[test]
fn unsupported_compression_is_reported_before_anything_is_written() {
    let fixture = ServerFixture::new("root");
    let query = format!("?destination={}/dest", fixture.root.display());
    for (offset, value, reason) in [(10, 14, "compressed with Lzma"), (8, 1, "encrypted")] {
        let mut zip = archive(&[("a", 0o644, b"text"), ("b", 0o644, b"text")]);
        let at = central_directory(&zip);
        zip[at + offset] = value;
        let (status, body) = fixture.upload(&query, "x.zip", &zip);
        let reason = format!("\\\"b\\\" is {reason}, which is not supported");
        assert!(status == 500 && body.contains(&reason), "{status} {body}");
        assert_eq!(fixture.list("{\"path\":\"dest\"}").1, "[]");
    }
}

#[test]
fn many_entries_are_unpacked_and_long_names_rejected() {
    let fixture = ServerFixture::new("root");
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..20_000 {
        let name = format!("d{}/f{index}", index % 10);
        let options = SimpleFileOptions::default();
        writer.start_file(name, options).unwrap();
    }
    let zip = writer.finish().unwrap().into_inner();
    let query = format!("?destination={}", fixture.root.display());
    assert_eq!(fixture.upload(&query, "many.zip", &zip).0, 200);
    assert_eq!(fs::read_dir(fixture.path("d3")).unwrap().count(), 2000);
    let long = format!("{}/x", "n".repeat(300));
    let (status, body) = fixture.upload(&query, "long.zip", &archive(&[(&long, 0o644, b"")]));
    let is_named = body.contains("[Errno 36] File name too long");
    assert!(status == 500 && is_named, "{status} {body}");
}
