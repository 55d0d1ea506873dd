//! Cases of `read` and `write` (`docs/specs/executor.md`, sections 6.1 and 6.3).

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::client::{mode_and_owner, set_mode};
use crate::fixture::{ServerFixture, all_users};
use crate::transfer::fields;

/// Reads files as every user. Fields of a row: section, path, content of the file (a text, or bytes
/// from `BINARY`), start and end of the range, kind and content of the observation.
fn check_reads(rows: &[&str]) {
    for fixture in all_users() {
        for row in rows {
            let [section, path, content, start, end, kind, expected] = fields(row);
            fixture.clear();
            let name = path.strip_prefix("{}/").filter(|name| *name != "nope");
            let content = match BINARY.iter().find(|(name, _)| *name == content) {
                Some((_, bytes)) => bytes,
                None => content.as_bytes(),
            };
            fixture.put(name.unwrap_or("f"), content);
            let number = |text: &str| text.parse::<i64>().map_or(Value::Null, Value::from);
            let path = fixture.fill(path);
            let args = json!({"path": path, "start": number(start), "end": number(end)});
            let answer = fixture.act("read", &args);
            assert_eq!(answer["observation"], kind, "{section}");
            assert_eq!(answer["content"], fixture.fill(expected), "{section}");
        }
    }
}

/// Contents that are not text.
const BINARY: [(&str, &[u8]); 6] = [
    ("PNG", b"\x89PNG\r\n\x1a\n\0\xff"),
    ("JPEG", b"\xff\xd8\xff"),
    ("PDF", b"%PDF\0\xff"),
    ("ELF", b"\x7fELF\0\xff"),
    ("ASCII with null", b"abc\0"),
    ("Latin-1", b"\xe9t\xe9 comme \xe7a"),
];

#[test]
fn lines_are_read() {
    check_reads(&[
        "6.1.4 all | {}/f | a\nb\nc\nd\n |  |  | read | a\nb\nc\nd\n",
        "6.1 second line | {}/f | a\nb\nc\nd\n | 1 | 2 | read | b\n",
        "6.1 third to last | {}/f | a\nb\nc\nd\n | 2 | -1 | read | c\nd\n",
        "6.1 start beyond: the last two | {}/f | a\nb\nc\nd\n | 9 | 12 | read | c\nd\n",
        "6.1 start beyond, to the end | {}/f | a\nb\nc\nd\n | 9 | -1 | read | ",
        "6.1 end beyond | {}/f | a\nb\nc\nd\n | 3 | 99 | read | c\nd\n",
        "6.1 end before start | {}/f | a\nb\nc\nd\n | 2 | 1 | read | c\n",
        "6.1 negative start | {}/f | a\nb\nc\nd\n | -3 | 1 | read | a\n",
        "6.1 empty file | {}/f |  | 0 | 5 | read | ",
        "6.1 no final newline | {}/f | a\nb | 1 | -1 | read | b",
        "6.1.4 CRLF and CR | {}/f | a\r\nb\rc |  |  | read | a\nb\nc",
        "6.1.4 Unicode | {}/f | é字🦀 |  |  | read | é字🦀",
    ]);
}

#[test]
fn media_become_data_urls() {
    check_reads(&[
        "6.1.3 png | {}/f.png | PNG |  |  | read | data:image/png;base64,iVBORw0KGgoA/w==",
        "6.1.3 case | {}/f.JPG | JPEG |  |  | read | data:image/jpeg;base64,/9j/",
        "6.1.3 jpeg | {}/f.jpeg | x |  |  | read | data:image/jpeg;base64,eA==",
        "6.1.3 bmp | {}/f.bmp | x |  |  | read | data:image/bmp;base64,eA==",
        "6.1.3 gif | {}/f.gif | x |  |  | read | data:image/gif;base64,eA==",
        "6.1.3 pdf | {}/f.pdf | PDF |  |  | read | data:application/pdf;base64,JVBERgD/",
        "6.1.3 mp4 | {}/f.mp4 | x |  |  | read | data:video/mp4;base64,eA==",
        "6.1.3 webm | {}/f.webm | x |  |  | read | data:video/webm;base64,eA==",
        "6.1.3 ogg | {}/f.ogg | x |  |  | read | data:audio/ogg;base64,eA==",
    ]);
}

#[test]
fn read_errors() {
    check_reads(&[
        "6.1.1 binary | {}/f | ELF |  |  | error | ERROR_BINARY_FILE",
        "6.1.1 a null byte in ASCII | {}/f | ASCII with null |  |  | error | ERROR_BINARY_FILE",
        "6.1.1 by its name | {}/f.pyc | text |  |  | error | ERROR_BINARY_FILE",
        "6.1 not UTF-8 | {}/f | Latin-1 |  |  | error | \
         File could not be decoded as utf-8: {}/f.",
        "6.1 missing | {}/nope |  |  |  | error | \
         File not found: {}/nope. Your current working directory is {}.",
        "6.1.2 missing, relative | nope |  |  |  | error | \
         File not found: {}/nope. Your current working directory is {}.",
        "6.1 directory | {} |  |  |  | error | Path is a directory: {}. You can only read files",
        "6.1.2 dots and slashes | .//./f | x |  |  | read | x",
        "6.1.2 .. is kept | ../work/f | x |  |  | read | x",
    ]);
}

#[test]
fn files_are_written() {
    // Section, content before (`-`: no file), content of the action, range, content after.
    let rows = [
        "6.3 new file | - | x |  | x\n",
        "6.3 a newline after every piece | - | x\n |  | x\n\n",
        "6.3 empty | - |  |  | \n",
        "6.3 a range in a new file | - | x | 3,4 | x\n",
        "6.3 everything is replaced | a\nb\nc\nd\n | x\ny |  | x\ny\n",
        "6.3 a line | a\nb\nc\nd\n | X | 1,2 | a\nX\nc\nd\n",
        "6.3 insertion | a\nb\nc\nd\n | X | 1,1 | a\nX\nb\nc\nd\n",
        "6.3 the rest | a\nb\nc\nd\n | X | 1,-1 | a\nX\n",
        "6.3 beyond the end | a\nb\nc\nd\n | X | 9,12 | a\nb\nc\nd\nX\n",
        "6.3 end before start | a\nb\nc\nd\n | X | 2,1 | a\nb\nX\nb\nc\nd\n",
        "12.15 CRLF stays | a\r\nb\r\n | x\ny | 1,2 | a\r\nx\r\ny\r\n",
        "12.15 a rewritten file has the newlines of its content | a\r\nb\r\n | x\ny |  | x\ny\n",
        "12.15 a rewritten file keeps CRLF in its content | a\n | x\r\ny\r |  | x\r\ny\r\n",
        "12.15 mixed newlines stay | a\r\nb\nc\n | x | 2,3 | a\r\nb\nx\n",
        "6.3 Unicode | é | 字 |  | 字\n",
    ];
    for fixture in all_users() {
        let write = |section: &str, path: &str, args: &mut Value, after: &str| {
            let path = fixture.fill(path);
            args["path"] = path.as_str().into();
            let expected = json!({
                "message": format!("I wrote to the file {path}."),
                "observation": "write",
                "content": "",
                "extras": {"path": path},
            });
            assert_eq!(fixture.act("write", args), expected, "{section}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after, "{section}");
            let (mode, owner) = mode_and_owner(&path);
            assert_eq!(owner, fixture.uid(), "{section}");
            mode
        };
        for row in rows {
            let [section, before, content, range, after] = fields(row);
            fixture.clear();
            if before != "-" {
                fixture.put("f", before.as_bytes());
            }
            let mut args = json!({"content": content});
            if let Some((start, end)) = range.split_once(',') {
                args["start"] = start.parse::<i64>().unwrap().into();
                args["end"] = end.parse::<i64>().unwrap().into();
            }
            let mode = write(section, "{}/f", &mut args, after);
            assert!(before != "-" || mode == 0o664, "{section}: {mode:o}");
        }
        let mut args = json!({"content": "x"});
        let section = "6.3 parents are made";
        assert_eq!(write(section, "{}/a/b/../c/f", &mut args, "x\n"), 0o664);
        assert_eq!(mode_and_owner(fixture.path("a/b")).1, fixture.uid());
    }
}

#[test]
fn write_errors() {
    for fixture in all_users() {
        fixture.put("latin", b"\xe9t\xe9");
        fixture.put("file", b"x");
        for row in [
            "6.3 directory | {} | Path is a directory: {}. You can only write to files",
            "6.3 not UTF-8 | {}/latin | File could not be decoded as utf-8: {}/latin",
            "6.3 below a file | {}/file/x | [Errno 20] Not a directory: '{}/file/x'",
            "6.3 parents below a file | {}/file/x/y | [Errno 20] Not a directory: '{}/file/x'",
            "6.3 a null byte | {}/a\0b | embedded null byte",
        ] {
            let [section, path, expected] = fields(row);
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
        set_mode(fixture.path("script"), 0o755);
        symlink("script", fixture.path("link")).unwrap();
        fixture.act("write", &json!({"path": "link", "content": "new"}));
        assert!(fixture.path("link").is_symlink());
        let kept = mode_and_owner(fixture.path("script"));
        assert_eq!(kept, (0o755, fixture.uid()));
        assert_eq!(std::fs::read(fixture.path("script")).unwrap(), b"new\n");
        symlink("nothing", fixture.path("dangling")).unwrap();
        fixture.act("write", &json!({"path": "dangling", "content": "made"}));
        assert_eq!(std::fs::read(fixture.path("nothing")).unwrap(), b"made\n");
    }
}

#[test]
fn special_files_are_not_read() {
    let fixture = ServerFixture::new("root");
    fixture.run("mkfifo pipe; ln -s /dev/zero zero");
    for path in ["pipe", "zero", "/dev/random", "/proc/self/mem"] {
        for source in ["default", "oh_aci"] {
            let args = json!({"path": fixture.root.join(path), "impl_source": source});
            let action = json!({"action": {"action": "read", "args": args}});
            let answer = fixture.post(&action.to_string());
            assert_eq!(answer.status, 200, "{path} {source}: {}", answer.body);
            assert!(answer.body.len() < 1000, "{path} {source}");
        }
    }
}
