//! `POST /upload_file` with single files, and what it refuses (spec 2.5).

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{archive, detail};
use crate::client::{KEY, request, send};
use crate::world::{World, everybody};

const MISSING: &str =
    "{'type': 'missing', 'loc': ('body', 'file'), 'msg': 'Field required', 'input': None}";
const FLAG: &str = "{'type': 'bool_parsing', 'loc': ('query', 'recursive'), 'msg': 'Input should be a valid boolean, unable to interpret input', 'input': 'maybe'}";

fn invalid(errors: &str) -> String {
    json!({"detail": "Invalid request parameters", "errors": format!("[{errors}]")}).to_string()
}

#[test]
fn uploads_are_stored() {
    for world in everybody() {
        let root = world.root.display().to_string();
        let stored = |name: &str, to: &str, recursive: bool| {
            format!(r#"{{"filename":"{name}","destination":"{to}","recursive":{recursive}}}"#)
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
                (422, invalid(FLAG)),
            ),
        ] {
            assert_eq!(world.upload(&query, filename, content), answer, "{section}");
        }
        // What was refused has left nothing.
        assert_eq!(world.list("{\"path\":\"up\"}").1, "[]");
        assert_eq!(fs::read(world.path("a.txt")).unwrap(), b"file");
    }
}

#[test]
fn names_that_are_too_long_are_refused() {
    for world in everybody() {
        let root = world.root.display();
        let at = |rest: &str| format!("?destination={root}{rest}");
        let long = "n".repeat(300);
        let (status, body) = world.upload(&at("/up"), &long, b"x");
        assert_eq!(
            (status, body.contains("[Errno 36] File name too long: ")),
            (500, true),
            "{body}"
        );
    }
}

#[test]
fn forms_without_a_file_are_refused() {
    for world in everybody() {
        let root = world.root.display().to_string();
        let at = |rest: &str| format!("?destination={root}{rest}");
        let form = b"--xx\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--xx--\r\n";
        let kind = "multipart/form-data; boundary=xx";
        for (section, query, kind, form, answer) in [
            (
                "2.5 no file part",
                at(""),
                kind,
                &form[..],
                (422, invalid(MISSING)),
            ),
            (
                "2.5 no form",
                at(""),
                "application/json",
                b"{}",
                (422, invalid(MISSING)),
            ),
            (
                "2.5 nothing right",
                at("&recursive=maybe"),
                kind,
                form,
                (422, invalid(&format!("{FLAG}, {MISSING}"))),
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

/// The first half of an upload to `dest`.
fn half(world: &World, name: &str) -> TcpStream {
    let body = format!(
        "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\nhalf"
    );
    let text = format!(
        "POST /upload_file?destination={}/dest HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {KEY}\r\n\
         Content-Type: multipart/form-data; boundary=xx\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{body}\r\n",
        world.root.display(),
        body.len()
    );
    let mut stream = TcpStream::connect(world.process.address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Files of the server in `dest`, with or without a name.
fn open_in_dest(world: &World) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", world.process.child.id())).unwrap();
    let targets = files.flatten().map(|file| fs::read_link(file.path()));
    let dest = world.path("dest");
    targets
        .flatten()
        .filter(|path| path.starts_with(&dest))
        .count()
}

/// Half an upload each of an existing file, of a new one and of an archive.
fn halves(world: &World) -> [TcpStream; 3] {
    world.put("dest/kept", b"old");
    let streams = ["kept", "new", "archive.zip"].map(|name| half(world, name));
    while open_in_dest(world) < streams.len() {
        std::thread::yield_now();
    }
    streams
}

fn only_the_old_file_is_there(world: &World) {
    let names = fs::read_dir(world.path("dest")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!(fs::read(world.path("dest/kept")).unwrap(), b"old");
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let world = World::new("root");
    drop(halves(&world));
    // Until the server has noticed.
    while open_in_dest(&world) > 0 {
        std::thread::yield_now();
    }
    only_the_old_file_is_there(&world);
}

#[test]
fn a_server_that_is_killed_leaves_nothing_of_an_upload() {
    let mut world = World::new("root");
    let _streams = halves(&world);
    world.process.signal(Signal::KILL);
    world.process.child.wait().unwrap();
    only_the_old_file_is_there(&world);
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
