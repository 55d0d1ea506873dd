//! Lists, uploads and downloads over HTTP: spec 2.4 to 2.6, and what hostile clients try.

use std::fs::{self, File, Permissions};
use std::io::{Cursor, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::client::{KEY, request, send};
use crate::world::{World, chunks, everybody};

const GENERIC: &str = "{\"detail\":\"An unexpected error occurred. Please try again later.\"}";

fn detail(text: &str) -> String {
    json!({"detail": text}).to_string()
}

fn archive(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, mode, content) in entries {
        let options = SimpleFileOptions::default().unix_permissions(*mode);
        if name.ends_with('/') {
            writer.add_directory(*name, options).unwrap();
        } else {
            writer.start_file(*name, options).unwrap();
            writer.write_all(content).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn lists_are_the_originals() {
    for world in everybody() {
        for name in ["sub/inner", "hello.sh", "U.JPG", "big.txt", ".hidden", "ü"] {
            world.put(name, b"");
        }
        world.put("Dir/x", b"");
        symlink("sub", world.path("link")).unwrap();
        symlink("gone", world.path("dangling")).unwrap();
        let all = r#"["Dir/","link/","sub/",".hidden","big.txt","hello.sh","U.JPG","ü"]"#;
        let root = world.root.display().to_string();
        world.process.run("cd /");
        let long = format!("{{\"path\":\"/{}\"}}", "x".repeat(5000));
        for (section, body, answer) in [
            ("2.4 no path: the initial directory", "{}", all),
            ("2.4 null", r#"{"path":null}"#, all),
            ("2.4 other keys", r#"{"zzz":1}"#, all),
            ("2.4 empty path", r#"{"path":""}"#, all),
            ("2.4 absolute", &format!("{{\"path\":\"{root}\"}}"), all),
            (
                "2.4 relative to the initial directory",
                r#"{"path":"sub"}"#,
                r#"["inner"]"#,
            ),
            ("2.4 through a link", r#"{"path":"link/"}"#, r#"["inner"]"#),
            ("2.4 missing", r#"{"path":"nope"}"#, "[]"),
            ("2.4 a file", r#"{"path":"U.JPG"}"#, "[]"),
            ("2.4 a null byte", r#"{"path":"a\u0000b"}"#, "[]"),
            ("2.4 a huge name", &long, "[]"),
        ] {
            assert_eq!(world.list(body), (200, answer.to_owned()), "{section}");
        }
        for (section, body) in [
            ("2.4 no object", "[1]"),
            ("2.4 no JSON", "{"),
            ("2.4 no body", ""),
            ("2.4 path no text", r#"{"path":5}"#),
        ] {
            assert_eq!(world.list(body), (500, GENERIC.to_owned()), "{section}");
        }
    }
}

#[test]
fn uploads_are_stored() {
    for world in everybody() {
        let root = world.root.display().to_string();
        let stored = |name: &str, to: &str, recursive: bool| {
            json!({"filename": name, "destination": to, "recursive": recursive}).to_string()
        };
        // Section, query, filename, answered filename, where it is.
        for (section, query, filename, name, recursive_zip) in [
            (
                "2.5 into a new directory",
                "up/deep",
                "a.txt",
                "a.txt",
                false,
            ),
            ("2.5 over a file", "up/deep", "a.txt", "a.txt", false),
            (
                "2.5 [R] only the base name",
                "up",
                "../b.txt",
                "b.txt",
                false,
            ),
            (
                "2.5 [R] an absolute name",
                "up",
                "/etc/passwd",
                "passwd",
                false,
            ),
            ("2.5 Unicode", "up", "ü 字.txt", "ü 字.txt", false),
            ("2.5 no zip by its name", "up", "x.ZIP", "x.ZIP", false),
        ] {
            let to = format!("{root}/{query}");
            let answer = world.upload(
                &format!("?destination={to}"),
                filename,
                b"\0bytes\r\n--x\xff",
            );
            assert_eq!(answer, (200, stored(name, &to, recursive_zip)), "{section}");
            let path = world.path(query).join(name);
            assert_eq!(fs::read(&path).unwrap(), b"\0bytes\r\n--x\xff", "{section}");
            let found = fs::metadata(&path).unwrap();
            // 12.16: the original leaves root's files.
            assert_eq!(
                (found.uid(), found.mode() & 0o7777),
                (world.uid, 0o644),
                "{section}"
            );
            assert_eq!(fs::metadata(world.path("up")).unwrap().uid(), world.uid);
        }
        let script = world.path("up/run.sh");
        world.put("up/run.sh", b"old");
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        world.upload(&format!("?destination={root}/up"), "run.sh", b"new");
        assert_eq!(
            (
                fs::read(&script).unwrap(),
                fs::metadata(&script).unwrap().mode() & 0o777
            ),
            (b"new".to_vec(), 0o755)
        );
        // A link at the name is replaced, not followed.
        world.put("target", b"kept");
        symlink(world.path("target"), world.path("up/link")).unwrap();
        world.upload(&format!("?destination={root}/up"), "link", b"new");
        assert_eq!(fs::read(world.path("target")).unwrap(), b"kept");
        assert_eq!(fs::read(world.path("up/link")).unwrap(), b"new");
        // Nothing else is left behind.
        let names = world.list(&json!({"path": "up"}).to_string()).1;
        assert!(!names.contains("sandbox-executor"), "{names}");
    }
}

#[test]
fn bad_uploads_are_refused_in_the_originals_words() {
    let missing =
        "{'type': 'missing', 'loc': ('body', 'file'), 'msg': 'Field required', 'input': None}";
    let flag = "{'type': 'bool_parsing', 'loc': ('query', 'recursive'), 'msg': 'Input should be a valid boolean, unable to interpret input', 'input': 'maybe'}";
    let invalid = |errors: &str| {
        json!({"detail": "Invalid request parameters", "errors": format!("[{errors}]")}).to_string()
    };
    for world in everybody() {
        let root = world.root.display().to_string();
        world.put("a.txt", b"file");
        let at = |rest: &str| format!("?destination={root}{rest}");
        for (section, query, filename, content, answer) in [
            (
                "2.5 relative destination",
                "?destination=up".to_owned(),
                "a",
                &b"x"[..],
                (500, detail("400: Destination must be an absolute path")),
            ),
            (
                "2.5 empty destination",
                "?destination=".to_owned(),
                "a",
                b"x",
                (500, detail("400: Destination must be an absolute path")),
            ),
            (
                "2.5 recursive but no zip",
                at("&recursive=true"),
                "a.tar",
                b"x",
                (500, detail("400: Recursive uploads must be zip files")),
            ),
            (
                "2.5 bad zip",
                at("/up"),
                "b.zip",
                b"no zip",
                (500, detail(&format!("{root}/up/b.zip is not a zip file"))),
            ),
            (
                "2.5 empty zip file",
                at("/up&recursive=1"),
                "b.zip",
                b"",
                (500, detail(&format!("{root}/up/b.zip is not a zip file"))),
            ),
            (
                "2.5 destination is a file",
                at("/a.txt"),
                "q.txt",
                b"x",
                (
                    500,
                    detail(&format!("[Errno 20] Not a directory: '{root}/a.txt/q.txt'")),
                ),
            ),
            (
                "2.5 destination below a file",
                at("/a.txt/b/c"),
                "q.txt",
                b"x",
                (
                    500,
                    detail(&format!("[Errno 20] Not a directory: '{root}/a.txt/b'")),
                ),
            ),
            (
                "2.5 no filename",
                at("/up"),
                "",
                b"x",
                (
                    500,
                    detail(&format!("[Errno 21] Is a directory: '{root}/up/'")),
                ),
            ),
            (
                "2.5 a name that is none",
                at("/up"),
                "..",
                b"x",
                (
                    500,
                    detail(&format!("[Errno 21] Is a directory: '{root}/up/'")),
                ),
            ),
            (
                "2.5 a null byte",
                at("/a%00b"),
                "q",
                b"x",
                (500, detail("embedded null byte")),
            ),
            (
                "2.5 bad bool",
                at("&recursive=maybe"),
                "a",
                b"x",
                (422, invalid(flag)),
            ),
        ] {
            assert_eq!(world.upload(&query, filename, content), answer, "{section}");
        }
        let long = "n".repeat(300);
        let (status, body) = world.upload(&at("/up"), &long, b"x");
        assert_eq!(
            (status, body.contains("[Errno 36] File name too long: ")),
            (500, true),
            "{body}"
        );
        let form = b"--xx\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--xx--\r\n";
        let kind = "multipart/form-data; boundary=xx";
        for (section, query, kind, form, answer) in [
            (
                "2.5 no file part",
                at(""),
                kind,
                &form[..],
                (422, invalid(missing)),
            ),
            (
                "2.5 no form",
                at(""),
                "application/json",
                b"{}",
                (422, invalid(missing)),
            ),
            (
                "2.5 nothing right",
                at("&recursive=maybe"),
                kind,
                form,
                (422, invalid(&format!("{flag}, {missing}"))),
            ),
            (
                "2.5 no boundary",
                at(""),
                "multipart/form-data",
                form,
                (400, detail("Missing boundary in multipart.")),
            ),
            (
                "2.5 broken form",
                at(""),
                kind,
                b"--xx\r\nContent-",
                (400, detail("There was an error parsing the body")),
            ),
        ] {
            assert_eq!(world.upload_form(&query, kind, form), answer, "{section}");
        }
        // What was refused has left nothing.
        assert_eq!(world.list("{\"path\":\"up\"}").1, "[]");
        assert_eq!(fs::read(world.path("a.txt")).unwrap(), b"file");
    }
}

#[test]
fn every_spelling_of_recursive_is_read() {
    let world = World::new("root");
    let zip = archive(&[("x", 0o644, b"x")]);
    for (spelling, expected) in [
        ("true", true),
        ("1", true),
        ("on", true),
        ("yes", true),
        ("t", true),
        ("Y", true),
        ("True", true),
        ("false", false),
        ("0", false),
        ("off", false),
        ("no", false),
        ("F", false),
        ("n", false),
    ] {
        let query = format!("?destination={}&recursive={spelling}", world.root.display());
        let (status, body) = world.upload(&query, "x.zip", &zip);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &body["recursive"]),
            (200, &json!(expected)),
            "{spelling}"
        );
    }
}

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
        assert_eq!(
            body,
            json!({"filename": "tmpabc.zip", "destination": to, "recursive": true}).to_string()
        );
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

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let world = World::new("root");
    world.put("dest/kept", b"old");
    for name in ["kept", "new", "archive.zip"] {
        let body = format!(
            "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\nhalf"
        );
        let head = format!(
            "POST /upload_file?destination={}/dest",
            world.root.display()
        );
        let headers = [
            ("X-Session-API-Key", KEY),
            ("Content-Type", "multipart/form-data; boundary=xx"),
            ("Transfer-Encoding", "chunked"),
        ];
        let framed = format!("{:x}\r\n{body}\r\n", body.len());
        let mut stream = std::net::TcpStream::connect(world.process.address).unwrap();
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        stream
            .write_all(format!("{head} HTTP/1.1\r\nHost: x\r\n{lines}\r\n{framed}").as_bytes())
            .unwrap();
        drop(stream);
    }
    // Until the server has noticed: it answers meanwhile.
    while world.list("{\"path\":\"dest\"}").1 != "[\"kept\"]" {
        std::thread::yield_now();
    }
    assert_eq!(fs::read(world.path("dest/kept")).unwrap(), b"old");
}

#[test]
fn directories_are_downloaded() {
    for world in everybody() {
        world.put("d/sub/b.txt", b"b");
        world.put("d/a.txt", b"aaa");
        world.put("d/.hidden", b"h");
        world.put("d/empty", b"");
        fs::create_dir(world.path("d/nothing")).unwrap();
        world.own(&world.path("d/nothing"));
        symlink("a.txt", world.path("d/file-link")).unwrap();
        symlink("sub", world.path("d/dir-link")).unwrap();
        symlink("gone", world.path("d/dangling")).unwrap();
        symlink(".", world.path("d/sub/loop")).unwrap();
        symlink("self", world.path("d/self")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            world.path("d/pipe"),
            rustix::fs::FileType::Fifo,
            0o666.into(),
            0,
        )
        .unwrap();
        fs::set_permissions(world.path("d/a.txt"), Permissions::from_mode(0o750)).unwrap();
        let ancient = SystemTime::UNIX_EPOCH - Duration::from_secs(1000);
        for (name, time) in [
            ("d/.hidden", ancient),
            (
                "d/empty",
                SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 33),
            ),
        ] {
            File::options()
                .write(true)
                .open(world.path(name))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let (status, headers, body) = world.download(&format!("?path={}/d", world.root.display()));
        assert_eq!(status, 200);
        assert!(
            headers.contains("content-type: application/zip\r\n"),
            "{headers}"
        );
        assert!(
            headers.contains("content-disposition: attachment; filename=\"d.zip\"\r\n"),
            "{headers}"
        );
        let mut zip = ZipArchive::new(Cursor::new(body)).unwrap();
        let mut found: Vec<(String, String)> = (0..zip.len())
            .map(|index| {
                let mut entry = zip.by_index(index).unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                assert_eq!(entry.compression(), CompressionMethod::Stored);
                (entry.name().unwrap().into_owned(), text)
            })
            .collect();
        found.sort();
        let expected = [
            (".hidden", "h"),
            ("a.txt", "aaa"),
            ("empty", ""),
            ("file-link", "aaa"),
            ("sub/b.txt", "b"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(found, expected);
        let mode =
            |zip: &mut ZipArchive<_>, name| zip.by_name(name).unwrap().unix_mode().unwrap() & 0o777;
        assert_eq!(mode(&mut zip, "a.txt"), 0o750);
    }
}

#[test]
fn what_cannot_be_downloaded_says_so() {
    for world in everybody() {
        world.put("f", b"text");
        let root = world.root.display().to_string();
        let missing =
            "{'type': 'missing', 'loc': ('query', 'path'), 'msg': 'Field required', 'input': None}";
        let invalid =
            json!({"detail": "Invalid request parameters", "errors": format!("[{missing}]")})
                .to_string();
        for (section, query, answer) in [
            (
                "2.6 relative",
                "?path=f".to_owned(),
                (500, detail("400: Path must be an absolute path")),
            ),
            (
                "2.6 empty",
                "?path=".to_owned(),
                (500, detail("400: Path must be an absolute path")),
            ),
            (
                "2.6 missing",
                format!("?path={root}/nope"),
                (500, detail("404: File not found")),
            ),
            (
                "2.6 null byte",
                format!("?path={root}/a%00b"),
                (500, detail("404: File not found")),
            ),
            ("2.6 no path", String::new(), (422, invalid)),
        ] {
            let (status, _, body) = world.download(&query);
            assert_eq!(
                (status, String::from_utf8(body).unwrap()),
                answer,
                "{section}"
            );
        }
        for (section, path, name) in [
            (
                "2.6 a file gives an empty archive",
                "f",
                "filename=\"f.zip\"",
            ),
            ("2.6 a trailing slash", "", "filename=\".zip\""),
        ] {
            let (status, headers, body) = world.download(&format!("?path={root}/{path}"));
            assert_eq!(status, 200, "{section}");
            assert!(headers.contains(name), "{section}: {headers}");
            assert!(path.is_empty() || body.len() == 22, "{section}");
        }
        fs::create_dir(world.path("ü x")).unwrap();
        let (_, headers, body) = world.download(&format!("?path={root}/%C3%BC%20x"));
        assert!(
            headers.contains("filename*=utf-8''%c3%bc%20x.zip"),
            "{headers}"
        );
        assert_eq!(body.len(), 22);
    }
}

#[test]
fn transfers_need_the_key_and_have_their_methods() {
    let world = World::new("root");
    let key = [("X-Session-API-Key", KEY)];
    for head in [
        "POST /list_files",
        "POST /upload_file?destination=/tmp",
        "GET /download_files?path=/",
    ] {
        assert_eq!(
            world.process.request(head, &[], b"{}").status,
            403,
            "{head}"
        );
        let path = head.split(' ').nth(1).unwrap();
        assert_eq!(
            world
                .process
                .request(&format!("PUT {path}"), &key, b"")
                .status,
            405,
            "{head}"
        );
    }
}

#[test]
fn transfers_have_the_sandbox_users_rights() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED transfers_have_the_sandbox_users_rights: needs root");
        return;
    }
    let world = World::new("nobody");
    let closed = world.root.parent().unwrap().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("secret"), "root's").unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let shown = closed.display().to_string();
    assert_eq!(
        world.list(&json!({"path": shown}).to_string()),
        (200, "[]".to_owned())
    );
    let (status, body) = world.upload(&format!("?destination={shown}"), "x", b"x");
    assert_eq!(
        (status, body),
        (
            500,
            detail(&format!("[Errno 13] Permission denied: '{shown}/x'"))
        )
    );
    let (status, body) = world.upload(&format!("?destination={shown}/new"), "x", b"x");
    assert_eq!(
        (status, body),
        (
            500,
            detail(&format!("[Errno 13] Permission denied: '{shown}/new'"))
        )
    );
    let (_, _, body) = world.download(&format!("?path={shown}"));
    assert_eq!(body.len(), 22);
    // A single file that is closed is left out; the rest arrives.
    world.put("d/open", b"x");
    fs::write(world.path("d/closed"), "root's").unwrap();
    fs::set_permissions(world.path("d/closed"), Permissions::from_mode(0o600)).unwrap();
    let (_, _, body) = world.download(&format!("?path={}/d", world.root.display()));
    let zip = ZipArchive::new(Cursor::new(body)).unwrap();
    assert_eq!(zip.len(), 1);
}

#[test]
fn huge_directories_and_loops_are_answered() {
    let world = World::new("root");
    world
        .process
        .run("mkdir many; cd many; seq -f 'file-%.0f' 1 100000 | xargs touch; cd ..");
    let (status, body) = world.list("{\"path\":\"many\"}");
    let names: Vec<String> = serde_json::from_str(&body).unwrap();
    assert_eq!((status, names.len()), (200, 100_000));
    let args = json!({"path": world.fill("{}/many"), "impl_source": "oh_aci"});
    let shown = world.act("read", &args)["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(shown.contains("<response clipped><NOTE>Due to the max output limit, only part of this directory has been shown to you."), "{}", &shown[shown.len() - 300..]);
    assert!(shown.len() < 20_000);
    // Forty links to each other, and a chain of directories that ends in its own start.
    for index in 0..60 {
        symlink(
            format!("l{}", (index + 1) % 60),
            world.path(&format!("l{index}")),
        )
        .unwrap();
    }
    world.process.run("d=.; for i in $(seq 200); do d=$d/deep; done; mkdir -p $d; ln -s \"$PWD/deep\" $d/loop; echo x > $d/file");
    let deep = "/deep".repeat(200);
    for path in [
        world.path("l0").display().to_string(),
        world.fill("{}/l0/x"),
    ] {
        let read = |source: &str| {
            world.process.post(&json!({"action": {"action": "read", "args": {"path": path, "impl_source": source}}}).to_string()).status
        };
        assert!([200, 500].contains(&read("default")));
        assert_eq!(read("oh_aci"), 200);
        assert_eq!(world.list(&json!({"path": path}).to_string()).1, "[]");
    }
    assert_eq!(
        world
            .list(&json!({"path": format!("{}{deep}", world.root.display())}).to_string())
            .1,
        "[\"loop/\",\"file\"]"
    );
    let (_, _, body) = world.download(&format!("?path={}/deep", world.root.display()));
    assert_eq!(ZipArchive::new(Cursor::new(body)).unwrap().len(), 1);
    assert!(world.peak() < 96 << 10, "{} KiB", world.peak());
}

#[test]
fn large_files_pass_through_little_memory() {
    const SIZE: u64 = 256 << 20;
    let world = World::new("root");
    let root = world.root.display().to_string();
    fs::create_dir(world.path("large")).unwrap();
    File::create(world.path("large/sparse"))
        .unwrap()
        .set_len(SIZE)
        .unwrap();
    let (status, _, mut reader) = world.open_download(&format!("?path={root}/large"));
    assert_eq!(status, 200);
    let (mut length, mut tail) = (0u64, Vec::new());
    let whole = chunks(&mut reader, |piece| {
        length += piece.len() as u64;
        tail.clear();
        tail.extend_from_slice(piece);
    });
    assert!(whole && length > SIZE, "{length}");
    assert!(tail.windows(4).any(|bytes| bytes == b"PK\x05\x06"));

    let head = b"--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"big\"\r\n\r\n";
    let tail = b"\r\n--xx--\r\n";
    let mut stream = std::net::TcpStream::connect(world.process.address).unwrap();
    let total = head.len() as u64 + SIZE + tail.len() as u64;
    write!(stream, "POST /upload_file?destination={root}/up HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Session-API-Key: {KEY}\r\nContent-Type: multipart/form-data; boundary=xx\r\nContent-Length: {total}\r\n\r\n").unwrap();
    stream.write_all(head).unwrap();
    let piece = vec![7; 1 << 20];
    for _ in 0..SIZE >> 20 {
        stream.write_all(&piece).unwrap();
    }
    stream.write_all(tail).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(fs::metadata(world.path("up/big")).unwrap().len(), SIZE);
    assert!(world.peak() < 64 << 10, "{} KiB", world.peak());
}

#[test]
fn nothing_waits_for_slow_readers_or_commands() {
    let world = World::new("root");
    world.put("d/f", b"x");
    File::create(world.path("large"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    world.process.run("mkdir big; mv large big; mkfifo gate");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| world.process.run("cat gate"));
        // Opens when the command has opened its end.
        let gate = File::options()
            .write(true)
            .open(world.path("gate"))
            .unwrap();
        // As many downloads as there may be, none of which is read.
        let stalled: Vec<_> = (0..8)
            .map(|_| world.open_download(&format!("?path={}/big", world.root.display())))
            .collect();
        let file = world.fill("{}/d/f");
        assert_eq!(world.act("read", &json!({"path": file}))["content"], "x");
        let edit = json!({"command": "insert", "path": file, "insert_line": 0, "new_str": "y"});
        assert!(
            !world.act("edit", &edit)["content"]
                .as_str()
                .unwrap()
                .starts_with("ERROR")
        );
        assert_eq!(world.list("{\"path\":\"d\"}").1, "[\"f\"]");
        assert_eq!(world.process.get("/server_info").json()["idle_time"], 0.0);
        // Readers that go away make room.
        drop(stalled);
        let (status, _, body) = world.download(&format!("?path={}/d", world.root.display()));
        assert_eq!(
            (status, ZipArchive::new(Cursor::new(body)).unwrap().len()),
            (200, 1)
        );
        drop(gate);
        assert_eq!(long.join().unwrap()["success"], true);
    });
}

#[test]
fn a_refused_upload_is_answered_although_it_is_large() {
    let world = World::new("root");
    let content = vec![b'x'; 8 << 20];
    assert_eq!(
        world.upload("?destination=relative", "x", &content),
        (500, detail("400: Destination must be an absolute path"))
    );
    let stream = send(
        world.process.address,
        "POST /list_files",
        &[("X-Session-API-Key", KEY)],
        b"{}",
    );
    drop(stream);
    assert_eq!(
        request(world.process.address, "GET /alive", &[], b"").status,
        200
    );
}
