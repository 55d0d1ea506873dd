//! Keys, rights, memory and waiting: what all transfers have in common.

use std::fs::{self, File, Permissions};
use std::io::{Cursor, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use zip::ZipArchive;

use super::detail;
use crate::client::KEY;
use crate::world::{World, chunks};

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
    let process = &world.process;
    std::thread::scope(|scope| {
        let command = json!({"command": "cat gate", "blocking": true});
        let command = json!({"action": "run", "args": command, "timeout": 60});
        let long = scope.spawn(move || process.act(&command));
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
