//! File viewer (`docs/specs/executor.md`, section 2.9).

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::client::{HttpResponse, TestProcess, request, serve_command};

struct ViewerFixture {
    directory: tempfile::TempDir,
    process: TestProcess,
    viewer: SocketAddr,
}

impl ViewerFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("url");
        let mut command = serve_command(&directory.path().join("w"), &["--viewer-url-file"]);
        // No shared network, as in a Pod.
        let process = TestProcess::start(command.arg(&file).env_remove("SANDBOX_BIND_ADDRESS"));
        let url = fs::read_to_string(file).unwrap();
        let address = url.strip_prefix("http://").unwrap();
        Self {
            directory,
            process,
            viewer: address.replace("localhost", "127.0.0.1").parse().unwrap(),
        }
    }

    fn get(&self, path: &str) -> HttpResponse {
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
fn viewer_listens_near_the_server() {
    let fixture = ViewerFixture::new();
    let (viewer, server) = (fixture.viewer.port(), fixture.process.address.port());
    assert!(viewer > server && viewer - server <= 1024);
    let running = r#"{"status":"File viewer server is running"}"#;
    assert_eq!(fixture.get("/").parts(), (200, running));
}

#[test]
fn images_are_shown() {
    let fixture = ViewerFixture::new();
    let path = fixture.put("test_image.PNG", b"\x89PN");
    let (status, page) = fixture.view(&path);
    assert_eq!(status, 200);
    for part in [
        "<title>File Viewer - test_image.PNG</title>",
        "<img alt=\"test_image.PNG\" src=\"data:image/png;base64,iVBO\">",
    ] {
        assert!(page.contains(part), "{page}");
    }
}

#[test]
fn pdf_is_shown_with_bundled_scripts() {
    let fixture = ViewerFixture::new();
    let (status, page) = fixture.view(&fixture.put("a.pdf", b"%PDF-1.4"));
    assert_eq!(status, 200);
    assert!(page.contains("const data = \"JVBERi0xLjQ=\""), "{page}");
    assert!(!page.contains("https:"), "{page}");
    for name in ["pdf.min.mjs", "pdf.worker.min.mjs"] {
        assert!(page.contains(&format!("\"/{name}\"")));
        // The decompressed script is complete and has its copyright notice.
        let url = format!("http://{}/{name}", fixture.viewer);
        let mut curl = Command::new("curl");
        let output = curl.args(["-sf", "--compressed", &url]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        let is_whole = script.trim_end().len() > 300_000;
        assert!(is_whole && script.contains("Mozilla Foundation"), "{name}");
    }
}

#[test]
fn unviewable_files_are_reported() {
    let fixture = ViewerFixture::new();
    let root = fixture.directory.path().display().to_string();
    let text = fixture.put("a.txt", b"");
    let bare = fixture.put("bare", b"");
    let unsupported = "Supported extensions are: .pdf, .png, .jpg, .jpeg, .gif";
    for (path, status, title, reason) in [
        ("a.png", 400, "Error: Path must be absolute", None),
        ("/no/x.png", 404, "Error: File not found", None),
        (&root, 400, "Error: Path is a directory", None),
        (&text, 500, "Error viewing file", Some(".txt")),
        (&bare, 500, "Error viewing file", Some("")),
    ] {
        let why = reason.map_or_else(String::new, |extension| {
            format!("<p>Unsupported file extension: {extension}. {unsupported}</p>")
        });
        let page = format!("<h1>{title}</h1><p>{path}</p>{why}");
        assert_eq!(fixture.view(path), (status, page), "2.9 {path}");
    }
    let large = fixture.put("large.png", b"");
    fs::File::create(&large).unwrap().set_len(33 << 20).unwrap();
    let (_, page) = fixture.view(&large);
    let reason = "<p>The file is larger than 32 MiB</p>";
    assert!(page.ends_with(reason), "{page}");
    let pipe = format!("{root}/pipe.png");
    Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert_eq!(fixture.view(&pipe).0, 500);
}

#[test]
fn viewer_is_off_in_a_shared_network() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    let mut command = serve_command(&directory.path().join("w"), &["--viewer-url-file"]);
    let process = TestProcess::start(command.arg(&file));
    assert_eq!(process.output("echo hi"), "hi");
    assert!(!file.exists());
}
