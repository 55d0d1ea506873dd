//! `POST /upload_file` with single files and its errors (`docs/specs/executor.md`, section 2.5).

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{archive, detail, fields};
use crate::client::{KEY, mode_and_owner, set_mode, wait_until};
use crate::fixture::{ServerFixture, all_users};

const MISSING: &str =
    "{'type': 'missing', 'loc': ('body', 'file'), 'msg': 'Field required', 'input': None}";
const FLAG: &str = "{'type': 'bool_parsing', 'loc': ('query', 'recursive'), 'msg': 'Input should be a valid boolean, unable to interpret input', 'input': 'maybe'}";

fn invalid(errors: &str) -> String {
    json!({"detail": "Invalid request parameters", "errors": format!("[{errors}]")}).to_string()
}

#[test]
fn uploads_are_stored() {
    for fixture in all_users() {
        let root = fixture.root.display().to_string();
        let stored = |name: &str, to: &str, recursive: bool| {
            format!(r#"{{"filename":"{name}","destination":"{to}","recursive":{recursive}}}"#)
        };
        // Section, directory, filename, filename in the response.
        for case in [
            "2.5 into a new directory | up/deep | a.txt | a.txt",
            "2.5 over a file | up/deep | a.txt | a.txt",
            "2.5 [R] only the base name | up | ../b.txt | b.txt",
            "2.5 [R] an absolute name | up | /etc/passwd | passwd",
            "2.5 Unicode | up | ü 字.txt | ü 字.txt",
            "2.5 no zip by its name | up | x.ZIP | x.ZIP",
        ] {
            let case = fixture.fill(case);
            let [section, query, filename, name] = fields(&case);
            let to = format!("{root}/{query}");
            let content = b"\0bytes\r\n--x\xff";
            let answer = fixture.upload(&format!("?destination={to}"), filename, content);
            assert_eq!(answer, (200, stored(name, &to, false)), "{section}");
            let path = fixture.path(query).join(name);
            assert_eq!(fs::read(&path).unwrap(), content, "{section}");
            // 12.16: the original leaves root's files.
            let expected = (0o644, fixture.uid());
            assert_eq!(mode_and_owner(&path), expected, "{section}");
            assert_eq!(mode_and_owner(fixture.path("up")).1, fixture.uid());
        }
        let script = fixture.path("up/run.sh");
        fixture.put("up/run.sh", b"old");
        set_mode(&script, 0o755);
        fixture.upload(&format!("?destination={root}/up"), "run.sh", b"new");
        assert_eq!(fs::read(&script).unwrap(), b"new");
        assert_eq!(mode_and_owner(&script).0, 0o755);
        // A link at the name is replaced, not followed.
        fixture.put("target", b"kept");
        symlink(fixture.path("target"), fixture.path("up/link")).unwrap();
        fixture.upload(&format!("?destination={root}/up"), "link", b"new");
        assert_eq!(fs::read(fixture.path("target")).unwrap(), b"kept");
        assert_eq!(fs::read(fixture.path("up/link")).unwrap(), b"new");
        // No temporary file is left.
        let names = fixture.list(&json!({"path": "up"}).to_string()).1;
        assert!(!names.contains("sandbox-executor"), "{names}");
    }
}

#[test]
fn invalid_uploads_get_the_errors_of_the_python_server() {
    for fixture in all_users() {
        fixture.put("a.txt", b"file");
        for case in [
            "2.5 relative destination | =up | a | x | 400: Destination must be an absolute path",
            "2.5 empty destination | = | a | x | 400: Destination must be an absolute path",
            "2.5 recursive but no zip | ={}&recursive=true | a.tar | x | \
             400: Recursive uploads must be zip files",
            "2.5 bad zip | ={}/up | b.zip | no zip | {}/up/b.zip is not a zip file",
            "2.5 empty zip | ={}/up&recursive=1 | b.zip |  | {}/up/b.zip is not a zip file",
            "2.5 destination is a file | ={}/a.txt | q.txt | x | \
             [Errno 20] Not a directory: '{}/a.txt/q.txt'",
            "2.5 destination below a file | ={}/a.txt/b/c | q.txt | x | \
             [Errno 20] Not a directory: '{}/a.txt/b'",
            "2.5 no filename | ={}/up |  | x | [Errno 21] Is a directory: '{}/up/'",
            "2.5 a name that is none | ={}/up | .. | x | [Errno 21] Is a directory: '{}/up/'",
            "2.5 a name that leads up | ={}/up | a/.. | x | [Errno 21] Is a directory: '{}/up/'",
            "2.5 a null byte | ={}/a%00b | q | x | embedded null byte",
        ] {
            let case = fixture.fill(case);
            let [section, to, filename, content, text] = fields(&case);
            let query = format!("?destination{to}");
            let answer = fixture.upload(&query, filename, content.as_bytes());
            assert_eq!(answer, (500, detail(text)), "{section}");
        }
        let query = fixture.fill("?destination={}&recursive=maybe");
        let answer = fixture.upload(&query, "a", b"x");
        assert_eq!(answer, (422, invalid(FLAG)), "2.5 bad bool");
        let query = fixture.fill("?destination={}/up");
        let (status, body) = fixture.upload(&query, &"n".repeat(300), b"x");
        assert_eq!(status, 500, "2.5 too long name");
        assert!(body.contains("[Errno 36] File name too long: "), "{body}");
        // Rejected uploads have left no file.
        assert_eq!(fixture.list("{\"path\":\"up\"}").1, "[]");
        assert_eq!(fs::read(fixture.path("a.txt")).unwrap(), b"file");
    }
}

#[test]
fn forms_without_a_file_are_rejected() {
    for fixture in all_users() {
        let form = "--xx\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--xx--\r\n";
        let both = invalid(&format!("{FLAG}, {MISSING}"));
        let parse = detail("There was an error parsing the body");
        let boundary = detail("Missing boundary in multipart.");
        let kind = "multipart/form-data; boundary=xx";
        let no_file = invalid(MISSING);
        let (plain, other) = ("multipart/form-data", "application/json");
        let nothing = "&recursive=maybe";
        let broken = "--xx\r\nContent-";
        for (section, flag, kind, form, answer) in [
            ("2.5 no file part", "", kind, form, (422, no_file.clone())),
            ("2.5 no form", "", other, "{}", (422, no_file)),
            ("2.5 nothing right", nothing, kind, form, (422, both)),
            ("2.5 no boundary", "", plain, form, (400, boundary)),
            ("2.5 broken form", "", kind, broken, (400, parse)),
        ] {
            let query = fixture.fill(&format!("?destination={{}}{flag}"));
            let found = fixture.upload_form(&query, kind, form.as_bytes());
            assert_eq!(found, answer, "{section}");
        }
    }
}

#[test]
fn recursive_accepts_every_boolean_spelling() {
    let fixture = ServerFixture::new("root");
    let zip = archive(&[("x", 0o644, b"x")]);
    for (spellings, expected) in [
        ("true 1 on yes t Y True", true),
        ("false 0 off no F n", false),
    ] {
        for spelling in spellings.split(' ') {
            let query = fixture.fill(&format!("?destination={{}}&recursive={spelling}"));
            let (status, body) = fixture.upload(&query, "x.zip", &zip);
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(status, 200, "{spelling}");
            assert_eq!(body["recursive"], expected, "{spelling}");
        }
    }
}

/// First half of an upload to `dest`.
fn half(fixture: &ServerFixture, name: &str) -> TcpStream {
    let body = format!(
        "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\nhalf"
    );
    let text = format!(
        "POST /upload_file?destination={}/dest HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {KEY}\r\n\
         Content-Type: multipart/form-data; boundary=xx\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{body}\r\n",
        fixture.root.display(),
        body.len()
    );
    let mut stream = TcpStream::connect(fixture.process.address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Number of files in `dest` that the server has open, named or not.
fn open_in_dest(fixture: &ServerFixture) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", fixture.process.child.id())).unwrap();
    let targets = files.flatten().map(|file| fs::read_link(file.path()));
    let dest = fixture.path("dest");
    let open = targets.flatten().filter(|path| path.starts_with(&dest));
    open.count()
}

/// First halves of uploads of an existing file, a new file and an archive.
fn halves(fixture: &ServerFixture) -> [TcpStream; 3] {
    fixture.put("dest/kept", b"old");
    let streams = ["kept", "new", "archive.zip"].map(|name| half(fixture, name));
    wait_until(|| open_in_dest(fixture) >= streams.len());
    streams
}

fn only_the_old_file_is_there(fixture: &ServerFixture) {
    let names = fs::read_dir(fixture.path("dest")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!(fs::read(fixture.path("dest/kept")).unwrap(), b"old");
}

#[test]
fn aborted_upload_leaves_no_file() {
    let fixture = ServerFixture::new("root");
    drop(halves(&fixture));
    // Wait until the server has noticed.
    wait_until(|| open_in_dest(&fixture) == 0);
    only_the_old_file_is_there(&fixture);
}

#[test]
fn killed_server_leaves_no_part_of_an_upload() {
    let mut fixture = ServerFixture::new("root");
    let _streams = halves(&fixture);
    fixture.signal(Signal::KILL);
    fixture.process.child.wait().unwrap();
    only_the_old_file_is_there(&fixture);
}

#[test]
fn large_rejected_upload_gets_its_error() {
    let fixture = ServerFixture::new("root");
    let content = vec![b'x'; 8 << 20];
    let error = detail("400: Destination must be an absolute path");
    let answer = fixture.upload("?destination=relative", "x", &content);
    assert_eq!(answer, (500, error));
    drop(fixture.send_keyed("POST /list_files", "{}"));
    assert_eq!(fixture.get("/alive").status, 200);
}
