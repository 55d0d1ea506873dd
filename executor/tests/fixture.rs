//! A server with a working directory for each user that can be tested, and raw HTTP for uploads and
//! downloads.

use std::any::Any;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::ops::Deref;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{SESSION_KEY, TestProcess, read_head, serve_command, set_mode};
use crate::conformance::environment::CaseEnvironment;

pub(crate) struct ServerFixture {
    pub(crate) process: TestProcess,
    pub(crate) root: PathBuf,
    pub(crate) username: &'static str,
    /// Uid of the sandbox user, once it was asked for.
    uid: OnceLock<u32>,
    /// Directories that are removed with the fixture.
    _directories: Box<dyn Any + Send + Sync>,
}

/// Fixtures as root, or as the current user, and as the sandbox user, uid 1000.
pub(crate) fn all_users() -> Vec<ServerFixture> {
    let mut fixtures = vec![ServerFixture::new("root")];
    fixtures.extend(ServerFixture::openhands(&[], |_, _| {}));
    fixtures
}

impl Deref for ServerFixture {
    type Target = TestProcess;

    fn deref(&self) -> &TestProcess {
        &self.process
    }
}

impl ServerFixture {
    pub(crate) fn new(username: &'static str) -> Self {
        Self::start(username, &[], &[])
    }

    pub(crate) fn start(
        username: &'static str,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        set_mode(&directory, 0o755);
        let root = directory.path().join("work");
        // Files of a killed server are removed with this directory.
        let temporary = tempfile::tempdir().unwrap();
        set_mode(&temporary, 0o1777);
        let mut command = serve_command(&root, &[&["--username", username], flags].concat());
        command
            .env("TMPDIR", temporary.path())
            .env("RUNTIME_USERNAME", username)
            .envs(variables.iter().copied());
        let directories = Box::new([directory, temporary]);
        Self::with(&mut command, root, username, directories)
    }

    /// Has a private `/etc`, in which the server creates the user.
    pub(crate) fn openhands(
        flags: &[&str],
        prepare: impl FnOnce(&CaseEnvironment, &mut Command),
    ) -> Option<Self> {
        let private = CaseEnvironment::private("openhands")?;
        let mut command = private.command("work", flags);
        prepare(&private, &mut command);
        let root = private.path("work");
        let fixture = Self::with(&mut command, root, "openhands", Box::new(private));
        Some(fixture)
    }

    fn with(
        command: &mut Command,
        root: PathBuf,
        username: &'static str,
        directories: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            process: TestProcess::start(command),
            root,
            username,
            uid: OnceLock::new(),
            _directories: directories,
        }
    }

    /// Uid of the sandbox user.
    pub(crate) fn uid(&self) -> u32 {
        let ask = || self.output("id -u").parse().unwrap();
        let uid = *self.uid.get_or_init(ask);
        assert!(self.username != "openhands" || uid == 1000, "{uid}");
        uid
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
        chown(path, Some(self.uid()), None).unwrap();
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
        let answer = self.keyed("POST /list_files", body);
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
        let headers = [SESSION_KEY, ("Content-Type", kind)];
        let answer = self.request(&format!("POST /upload_file{query}"), &headers, form);
        (answer.status, answer.body)
    }

    /// Downloads and returns status, headers in lower case, and body.
    pub(crate) fn download(&self, query: &str) -> (u16, String, Vec<u8>) {
        let (status, headers, reader) = self.open_download(query);
        (status, headers.clone(), body(&headers, reader))
    }

    pub(crate) fn open_download(&self, query: &str) -> (u16, String, BufReader<TcpStream>) {
        let stream = self.send_keyed(&format!("GET /download_files{query}"), "");
        let mut reader = BufReader::new(stream);
        let head = read_head(&mut reader);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), reader)
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
