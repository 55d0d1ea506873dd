//! Keys, rights, memory and stalls of all transfers.

use std::fs::{self, File};
use std::io::{Cursor, Read as _, Write as _};

use serde_json::json;
use zip::ZipArchive;

use super::detail;
use crate::client::{KEY, is_root, set_mode};
use crate::fixture::{ServerFixture, chunks};

#[test]
fn transfers_require_key_and_method() {
    let fixture = ServerFixture::new("root");
    for head in [
        "POST /list_files",
        "POST /upload_file?destination=/tmp",
        "GET /download_files?path=/",
    ] {
        let without_key = fixture.request(head, &[], b"{}");
        assert_eq!(without_key.status, 403, "{head}");
        let path = head.split(' ').nth(1).unwrap();
        let put = fixture.keyed(&format!("PUT {path}"), "");
        assert_eq!(put.status, 405, "{head}");
    }
}

#[test]
fn transfers_have_the_rights_of_the_sandbox_user() {
    if !is_root("transfers_have_the_rights_of_the_sandbox_user") {
        return;
    }
    let fixture = ServerFixture::new("nobody");
    let closed = fixture.root.parent().unwrap().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("secret"), "root's").unwrap();
    set_mode(&closed, 0o700);
    let shown = closed.display().to_string();
    let list = fixture.list(&json!({"path": shown}).to_string());
    assert_eq!(list, (200, "[]".to_owned()));
    for (destination, denied) in [("", "/x"), ("/new", "/new")] {
        let answer = fixture.upload(&format!("?destination={shown}{destination}"), "x", b"x");
        let error = format!("[Errno 13] Permission denied: '{shown}{denied}'");
        assert_eq!(answer, (500, detail(&error)));
    }
    let (_, _, body) = fixture.download(&format!("?path={shown}"));
    assert_eq!(body.len(), 22);
    // An unreadable file is left out; the rest arrives.
    fixture.put("d/open", b"x");
    fs::write(fixture.path("d/closed"), "root's").unwrap();
    set_mode(fixture.path("d/closed"), 0o600);
    let (_, _, body) = fixture.download(&format!("?path={}/d", fixture.root.display()));
    let zip = ZipArchive::new(Cursor::new(body)).unwrap();
    assert_eq!(zip.len(), 1);
}

#[test]
fn large_files_are_streamed_in_bounded_memory() {
    const SIZE: u64 = 256 << 20;
    let fixture = ServerFixture::new("root");
    let root = fixture.root.display().to_string();
    fs::create_dir(fixture.path("large")).unwrap();
    File::create(fixture.path("large/sparse"))
        .unwrap()
        .set_len(SIZE)
        .unwrap();
    let (status, _, mut reader) = fixture.open_download(&format!("?path={root}/large"));
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
    let mut stream = std::net::TcpStream::connect(fixture.process.address).unwrap();
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
    assert_eq!(fs::metadata(fixture.path("up/big")).unwrap().len(), SIZE);
    assert!(fixture.peak() < 64 << 10, "{} KiB", fixture.peak());
}

#[test]
fn stalled_downloads_and_commands_do_not_delay_actions() {
    let fixture = ServerFixture::new("root");
    fixture.put("d/f", b"x");
    File::create(fixture.path("large"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    fixture.run("mkdir big; mv large big");
    let long = fixture.while_waiting(&fixture.root, || {
        // The maximum of downloads, none of which is read.
        let stalled: Vec<_> = (0..8)
            .map(|_| fixture.open_download(&fixture.fill("?path={}/big")))
            .collect();
        let file = fixture.fill("{}/d/f");
        assert_eq!(fixture.act("read", &json!({"path": file}))["content"], "x");
        let edit = json!({"command": "insert", "path": file, "insert_line": 0, "new_str": "y"});
        let edited = fixture.act("edit", &edit)["content"].clone();
        assert!(!edited.as_str().unwrap().starts_with("ERROR"), "{edited}");
        assert_eq!(fixture.list("{\"path\":\"d\"}").1, "[\"f\"]");
        assert_eq!(fixture.get("/server_info").json()["idle_time"], 0.0);
        // Closed connections free their slots.
        drop(stalled);
        let (status, _, body) = fixture.download(&fixture.fill("?path={}/d"));
        let entries = ZipArchive::new(Cursor::new(body)).unwrap().len();
        assert_eq!((status, entries), (200, 1));
    });
    assert_eq!(long["success"], true);
}
