//! Cases of `read` and `write` (`docs/specs/executor.md`, sections 6.1 and 6.3).

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::fixture::{ServerFixture, all_users};

const LINES: &[u8] = b"a\nb\nc\nd\n";

/// Section, file name, file content, arguments, and kind and content of the observation.
type Reading = (
    &'static str,
    &'static str,
    &'static [u8],
    Value,
    &'static str,
    &'static str,
);

/// Reads each file as every user.
fn check(cases: &[Reading]) {
    for fixture in all_users() {
        for (section, name, content, args, kind, expected) in cases {
            fixture.clear();
            fixture.put(name, content);
            let mut args = args.clone();
            let path = args["path"]
                .as_str()
                .map_or(format!("{{}}/{name}"), str::to_owned);
            args["path"] = fixture.fill(&path).into();
            let answer = fixture.act("read", &args);
            assert_eq!(answer["observation"], *kind, "{section}");
            assert_eq!(answer["content"], fixture.fill(expected), "{section}");
        }
    }
}

fn range(start: i64, end: i64) -> Value {
    json!({"start": start, "end": end})
}

fn all() -> Value {
    json!({})
}

#[test]
fn lines_are_read() {
    check(&[
        ("6.1.4 all", "f", LINES, all(), "read", "a\nb\nc\nd\n"),
        ("6.1 second line", "f", LINES, range(1, 2), "read", "b\n"),
        (
            "6.1 third to last",
            "f",
            LINES,
            range(2, -1),
            "read",
            "c\nd\n",
        ),
        (
            "6.1 start beyond: the last two",
            "f",
            LINES,
            range(9, 12),
            "read",
            "c\nd\n",
        ),
        (
            "6.1 start beyond, to the end",
            "f",
            LINES,
            range(9, -1),
            "read",
            "",
        ),
        ("6.1 end beyond", "f", LINES, range(3, 99), "read", "c\nd\n"),
        (
            "6.1 end before start",
            "f",
            LINES,
            range(2, 1),
            "read",
            "c\n",
        ),
        (
            "6.1 negative start",
            "f",
            LINES,
            range(-3, 1),
            "read",
            "a\n",
        ),
        ("6.1 empty file", "f", b"", range(0, 5), "read", ""),
        (
            "6.1 no final newline",
            "f",
            b"a\nb",
            range(1, -1),
            "read",
            "b",
        ),
        (
            "6.1.4 CRLF and CR",
            "f",
            b"a\r\nb\rc",
            all(),
            "read",
            "a\nb\nc",
        ),
        (
            "6.1.4 Unicode",
            "f",
            "é字🦀".as_bytes(),
            all(),
            "read",
            "é字🦀",
        ),
    ]);
}

#[test]
fn media_become_data_urls() {
    check(&[
        (
            "6.1.3 png",
            "f.png",
            b"\x89PNG\r\n\x1a\n\0\xff",
            all(),
            "read",
            "data:image/png;base64,iVBORw0KGgoA/w==",
        ),
        (
            "6.1.3 case",
            "f.JPG",
            b"\xff\xd8\xff",
            all(),
            "read",
            "data:image/jpeg;base64,/9j/",
        ),
        (
            "6.1.3 jpeg",
            "f.jpeg",
            b"x",
            all(),
            "read",
            "data:image/jpeg;base64,eA==",
        ),
        (
            "6.1.3 bmp",
            "f.bmp",
            b"x",
            all(),
            "read",
            "data:image/bmp;base64,eA==",
        ),
        (
            "6.1.3 gif",
            "f.gif",
            b"x",
            all(),
            "read",
            "data:image/gif;base64,eA==",
        ),
        (
            "6.1.3 pdf",
            "f.pdf",
            b"%PDF\0\xff",
            all(),
            "read",
            "data:application/pdf;base64,JVBERgD/",
        ),
        (
            "6.1.3 mp4",
            "f.mp4",
            b"x",
            all(),
            "read",
            "data:video/mp4;base64,eA==",
        ),
        (
            "6.1.3 webm",
            "f.webm",
            b"x",
            all(),
            "read",
            "data:video/webm;base64,eA==",
        ),
        (
            "6.1.3 ogg",
            "f.ogg",
            b"x",
            all(),
            "read",
            "data:audio/ogg;base64,eA==",
        ),
    ]);
}

#[test]
fn read_errors() {
    let gone = "File not found: {}/nope. Your current working directory is {}.";
    check(&[
        (
            "6.1.1 binary",
            "f",
            b"\x7fELF\0\xff",
            all(),
            "error",
            "ERROR_BINARY_FILE",
        ),
        (
            "6.1.1 a null byte in ASCII",
            "f",
            b"abc\0",
            all(),
            "error",
            "ERROR_BINARY_FILE",
        ),
        (
            "6.1.1 by its name",
            "f.pyc",
            b"text",
            all(),
            "error",
            "ERROR_BINARY_FILE",
        ),
        (
            "6.1 not UTF-8",
            "f",
            b"\xe9t\xe9 comme \xe7a",
            all(),
            "error",
            "File could not be decoded as utf-8: {}/f.",
        ),
        (
            "6.1 missing",
            "f",
            b"",
            json!({"path": "{}/nope"}),
            "error",
            gone,
        ),
        (
            "6.1.2 missing, relative",
            "f",
            b"",
            json!({"path": "nope"}),
            "error",
            gone,
        ),
        (
            "6.1 directory",
            "f",
            b"",
            json!({"path": "{}"}),
            "error",
            "Path is a directory: {}. You can only read files",
        ),
        (
            "6.1.2 dots and slashes",
            "f",
            b"x",
            json!({"path": ".//./f"}),
            "read",
            "x",
        ),
        (
            "6.1.2 .. is kept",
            "f",
            b"x",
            json!({"path": "../work/f"}),
            "read",
            "x",
        ),
    ]);
}

/// Section, content before, arguments, content after.
type Writing = (&'static str, Option<&'static [u8]>, Value, &'static [u8]);

#[test]
fn files_are_written() {
    let part =
        |text: &str, start: i64, end: i64| json!({"content": text, "start": start, "end": end});
    let whole = |text: &str| json!({"content": text});
    #[rustfmt::skip]
    let cases: Vec<Writing> = vec![
        ("6.3 new file", None, whole("x"), b"x\n"),
        ("6.3 a newline after every piece", None, whole("x\n"), b"x\n\n"),
        ("6.3 empty", None, whole(""), b"\n"),
        ("6.3 a range in a new file", None, part("x", 3, 4), b"x\n"),
        ("6.3 everything is replaced", Some(LINES), whole("x\ny"), b"x\ny\n"),
        ("6.3 a line", Some(LINES), part("X", 1, 2), b"a\nX\nc\nd\n"),
        ("6.3 insertion", Some(LINES), part("X", 1, 1), b"a\nX\nb\nc\nd\n"),
        ("6.3 the rest", Some(LINES), part("X", 1, -1), b"a\nX\n"),
        ("6.3 beyond the end", Some(LINES), part("X", 9, 12), b"a\nb\nc\nd\nX\n"),
        ("6.3 end before start", Some(LINES), part("X", 2, 1), b"a\nb\nX\nb\nc\nd\n"),
        ("12.15 CRLF stays", Some(b"a\r\nb\r\n"), part("x\ny", 1, 2), b"a\r\nx\r\ny\r\n"),
        ("12.15 a rewritten file has the newlines of its content", Some(b"a\r\nb\r\n"),
            whole("x\ny"), b"x\ny\n"),
        ("12.15 a rewritten file keeps CRLF in its content", Some(b"a\n"), whole("x\r\ny\r"),
            b"x\r\ny\r\n"),
        ("12.15 mixed newlines stay", Some(b"a\r\nb\nc\n"), part("x", 2, 3), b"a\r\nb\nx\n"),
        ("6.3 Unicode", Some("é".as_bytes()), whole("字"), "字\n".as_bytes()),
        ("6.3 parents are made", None, json!({"content": "x", "path": "{}/a/b/../c/f"}), b""),
    ];
    for fixture in all_users() {
        for (section, before, args, after) in &cases {
            fixture.clear();
            if let Some(before) = before {
                fixture.put("f", before);
            }
            let mut args = args.clone();
            let path = fixture.fill(args["path"].as_str().unwrap_or("{}/f"));
            args["path"] = path.clone().into();
            let expected = json!({
                "message": format!("I wrote to the file {path}."),
                "observation": "write",
                "content": "",
                "extras": {"path": path},
            });
            assert_eq!(fixture.act("write", &args), expected, "{section}");
            if !after.is_empty() {
                assert_eq!(std::fs::read(&path).unwrap(), *after, "{section}");
            }
            let found = std::fs::metadata(&path).unwrap();
            assert_eq!(found.uid(), fixture.uid, "{section}");
            if before.is_none() {
                assert_eq!(found.mode() & 0o7777, 0o664, "{section}");
            }
        }
        assert_eq!(
            std::fs::metadata(fixture.path("a/b")).unwrap().uid(),
            fixture.uid
        );
    }
}

#[test]
fn write_errors() {
    for fixture in all_users() {
        fixture.put("latin", b"\xe9t\xe9");
        fixture.put("file", b"x");
        for (section, path, expected) in [
            (
                "6.3 directory",
                "{}",
                "Path is a directory: {}. You can only write to files",
            ),
            (
                "6.3 not UTF-8",
                "{}/latin",
                "File could not be decoded as utf-8: {}/latin",
            ),
            (
                "6.3 below a file",
                "{}/file/x",
                "[Errno 20] Not a directory: '{}/file/x'",
            ),
            (
                "6.3 parents below a file",
                "{}/file/x/y",
                "[Errno 20] Not a directory: '{}/file/x'",
            ),
            ("6.3 a null byte", "{}/a\0b", "embedded null byte"),
        ] {
            let answer = fixture.act("write", &json!({"path": fixture.fill(path), "content": ""}));
            assert_eq!(answer["observation"], "error", "{section}");
            assert_eq!(answer["content"], fixture.fill(expected), "{section}");
        }
        assert_eq!(std::fs::read(fixture.path("file")).unwrap(), b"x");
    }
}

#[test]
fn write_keeps_mode_and_links() {
    for fixture in all_users() {
        fixture.put("script", b"old");
        std::fs::set_permissions(
            fixture.path("script"),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        symlink("script", fixture.path("link")).unwrap();
        fixture.act("write", &json!({"path": "link", "content": "new"}));
        assert!(fixture.path("link").is_symlink());
        let found = std::fs::metadata(fixture.path("script")).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o755, fixture.uid));
        assert_eq!(std::fs::read(fixture.path("script")).unwrap(), b"new\n");
    }
}

#[test]
fn special_files_are_not_read() {
    let fixture = ServerFixture::new("root");
    fixture.process.run("mkfifo pipe; ln -s /dev/zero zero");
    for path in ["pipe", "zero", "/dev/random", "/proc/self/mem"] {
        for source in ["default", "oh_aci"] {
            let full = if path.starts_with('/') {
                path.to_owned()
            } else {
                fixture.fill(&format!("{{}}/{path}"))
            };
            let args = json!({"path": full, "impl_source": source});
            let action = json!({"action": {"action": "read", "args": args}});
            let answer = fixture.process.post(&action.to_string());
            assert_eq!(answer.status, 200, "{path} {source}: {}", answer.body);
            assert!(answer.body.len() < 1000, "{path} {source}");
        }
    }
}
