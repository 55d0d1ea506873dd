//! A server with a working directory for each user that can be tested, and raw HTTP for uploads and
//! downloads.

use std::any::Any;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::client::{KEY, TestProcess, serve_command};
use crate::conformance::environment::CaseEnvironment;

pub(crate) struct ServerFixture {
    pub(crate) process: TestProcess,
    pub(crate) root: PathBuf,
    /// Uid of the sandbox user.
    pub(crate) uid: u32,
    /// Directories that are removed with the fixture.
    _directories: Box<dyn Any + Send + Sync>,
}

/// Fixtures as root, or as the current user, and as the sandbox user, uid 1000.
pub(crate) fn all_users() -> Vec<ServerFixture> {
    let mut fixtures = vec![ServerFixture::new("root")];
    fixtures.extend(ServerFixture::openhands());
    fixtures
}

impl ServerFixture {
    pub(crate) fn new(username: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&directory, open).unwrap();
        let root = directory.path().join("work");
        // Files of a killed server are removed with this directory.
        let temporary = tempfile::tempdir().unwrap();
        let world_writable = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(&temporary, world_writable).unwrap();
        let mut command = serve_command(&root, &["--username", username]);
        command.env("TMPDIR", temporary.path());
        let process = TestProcess::start(command.env("RUNTIME_USERNAME", username));
        Self::with(process, root, [directory, temporary])
    }

    /// Has a private `/etc`, in which the server creates the user.
    fn openhands() -> Option<Self> {
        let private = CaseEnvironment::private("openhands")?;
        let process = private.serve("work");
        let root = private.path("work");
        let fixture = Self::with(process, root, private);
        assert_eq!(fixture.uid, 1000);
        Some(fixture)
    }

    fn with(process: TestProcess, root: PathBuf, directories: impl Any + Send + Sync) -> Self {
        let answer = process.run("id -u");
        Self {
            process,
            root,
            uid: answer["content"].as_str().unwrap().parse().unwrap(),
            _directories: Box::new(directories),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Replaces `{}` by the working directory.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("{}", self.root.to_str().unwrap())
    }

    /// Writes a file that belongs to the sandbox user.
    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        for directory in path.parent().unwrap().ancestors() {
            if directory == self.root {
                break;
            }
            std::fs::create_dir_all(directory).unwrap();
            self.own(directory);
        }
        std::fs::write(&path, content).unwrap();
        self.own(&path);
    }

    pub(crate) fn own(&self, path: &Path) {
        chown(path, Some(self.uid), None).unwrap();
    }

    pub(crate) fn clear(&self) {
        for entry in std::fs::read_dir(&self.root).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
    }

    pub(crate) fn act(&self, action: &str, args: &Value) -> Value {
        self.process.act(&json!({"action": action, "args": args}))
    }

    pub(crate) fn list(&self, body: &str) -> (u16, String) {
        let answer = self.process.request(
            "POST /list_files",
            &[("X-Session-API-Key", KEY)],
            body.as_bytes(),
        );
        (answer.status, answer.body)
    }

    /// Uploads and returns status and body.
    pub(crate) fn upload(&self, query: &str, filename: &str, content: &[u8]) -> (u16, String) {
        let head = format!(
            "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let form = [head.as_bytes(), content, b"\r\n--xx--\r\n"].concat();
        self.upload_form(query, "multipart/form-data; boundary=xx", &form)
    }

    pub(crate) fn upload_form(&self, query: &str, kind: &str, form: &[u8]) -> (u16, String) {
        let answer = self.process.request(
            &format!("POST /upload_file{query}"),
            &[("X-Session-API-Key", KEY), ("Content-Type", kind)],
            form,
        );
        (answer.status, answer.body)
    }

    /// Downloads and returns status, headers in lower case, and body.
    pub(crate) fn download(&self, query: &str) -> (u16, String, Vec<u8>) {
        let (status, headers, reader) = self.open_download(query);
        (status, headers.clone(), body(&headers, reader))
    }

    pub(crate) fn open_download(&self, query: &str) -> (u16, String, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(self.process.address).unwrap();
        let text = format!(
            "GET /download_files{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             X-Session-API-Key: {KEY}\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), reader)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.process.peak()
    }
}

fn body(headers: &str, mut reader: BufReader<TcpStream>) -> Vec<u8> {
    let mut content = Vec::new();
    if headers.contains("transfer-encoding: chunked") {
        let whole = chunks(&mut reader, |piece| content.extend_from_slice(piece));
        assert!(whole, "broke off");
    } else {
        reader.read_to_end(&mut content).unwrap();
    }
    content
}

/// Passes every chunk to `feed` and returns whether the last one arrived.
pub(crate) fn chunks(reader: &mut BufReader<TcpStream>, mut feed: impl FnMut(&[u8])) -> bool {
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return false;
        }
        let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
        let mut piece = vec![0; length + 2];
        if reader.read_exact(&mut piece).is_err() {
            return false;
        }
        if length == 0 {
            return true;
        }
        feed(&piece[..length]);
    }
}
