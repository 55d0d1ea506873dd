//! The file viewer: spec 2.9.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::client::{Answer, Process, request, serve_command};

struct World {
    directory: tempfile::TempDir,
    process: Process,
    viewer: SocketAddr,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("url");
        let mut command = serve_command(&directory.path().join("w"), &["--viewer-url-file"]);
        // Alone in its network, as in a Pod.
        let process = Process::start(command.arg(&file).env_remove("SANDBOX_BIND_ADDRESS"));
        let url = fs::read_to_string(file).unwrap();
        let port = url
            .strip_prefix("http://localhost:")
            .unwrap()
            .parse()
            .unwrap();
        Self {
            directory,
            process,
            viewer: SocketAddr::from(([127, 0, 0, 1], port)),
        }
    }

    fn get(&self, path: &str) -> Answer {
        request(self.viewer, &format!("GET {path}"), &[], b"")
    }

    fn view(&self, path: &str) -> (u16, String) {
        let answer = self.get(&format!("/view?path={path}"));
        (answer.status, answer.body)
    }

    fn put(&self, name: &str, content: &[u8]) -> String {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

#[test]
fn it_listens_near_the_server() {
    let world = World::new();
    let (viewer, server) = (world.viewer.port(), world.process.address.port());
    assert!(viewer > server && viewer - server <= 1024);
    let answer = world.get("/");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, r#"{"status":"File viewer server is running"}"#)
    );
}

#[test]
fn pictures_are_shown() {
    let world = World::new();
    let path = world.put("test_image.PNG", b"\x89PN");
    let (status, page) = world.view(&path);
    assert_eq!(status, 200);
    assert!(
        page.contains("<title>File Viewer - test_image.PNG</title>"),
        "{page}"
    );
    assert!(
        page.contains("<img alt=\"test_image.PNG\" src=\"data:image/png;base64,iVBO\">"),
        "{page}"
    );
}

#[test]
fn documents_are_drawn_with_what_the_viewer_has() {
    let world = World::new();
    let (status, page) = world.view(&world.put("a.pdf", b"%PDF-1.4"));
    assert_eq!(status, 200);
    assert!(
        page.contains("const data = \"JVBERi0xLjQ=\"") && !page.contains("https:"),
        "{page}"
    );
    for name in ["pdf.min.mjs", "pdf.worker.min.mjs"] {
        assert!(page.contains(&format!("\"/{name}\"")));
        // A client that unpacks: the whole script, with the notice of its makers.
        let url = format!("http://{}/{name}", world.viewer);
        let output = Command::new("curl")
            .args(["-sf", "--compressed", &url])
            .output()
            .unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            script.contains("Mozilla Foundation") && script.trim_end().len() > 300_000,
            "{name}"
        );
    }
}

#[test]
fn what_cannot_be_shown_is_told() {
    let world = World::new();
    let root = world.directory.path().display().to_string();
    let text = world.put("a.txt", b"");
    let bare = world.put("bare", b"");
    let extensions = "Supported extensions are: .pdf, .png, .jpg, .jpeg, .gif";
    for (path, status, page) in [
        (
            "a.png".to_owned(),
            400,
            "<h1>Error: Path must be absolute</h1><p>a.png</p>".to_owned(),
        ),
        (
            "/no/x.png".to_owned(),
            404,
            "<h1>Error: File not found</h1><p>/no/x.png</p>".to_owned(),
        ),
        (
            root.clone(),
            400,
            format!("<h1>Error: Path is a directory</h1><p>{root}</p>"),
        ),
        (
            text.clone(),
            500,
            format!(
                "<h1>Error viewing file</h1><p>{text}</p><p>Unsupported file extension: .txt. {extensions}</p>"
            ),
        ),
        (
            bare.clone(),
            500,
            format!(
                "<h1>Error viewing file</h1><p>{bare}</p><p>Unsupported file extension: . {extensions}</p>"
            ),
        ),
    ] {
        assert_eq!(world.view(&path), (status, page), "2.9 {path}");
    }
    let large = world.put("large.png", b"");
    fs::File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_len(33 << 20)
        .unwrap();
    assert!(
        world
            .view(&large)
            .1
            .ends_with("<p>The file is larger than 32 MiB</p>")
    );
    Command::new("mkfifo")
        .arg(format!("{root}/pipe.png"))
        .status()
        .unwrap();
    assert_eq!(world.view(&format!("{root}/pipe.png")).0, 500);
}

#[test]
fn where_others_share_the_network_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    let mut command = serve_command(&directory.path().join("w"), &["--viewer-url-file"]);
    let process = Process::start(command.arg(&file));
    assert_eq!(process.run("echo hi")["content"], "hi");
    assert!(!file.exists());
}
