//! Fixture of servers with plugins, and the Python of their kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::client::free_port;
use crate::fixture::ServerFixture;

/// Python with ipykernel and mcp, installed once by `hack/python-kernel/install`.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../hack/python-kernel/install");
    let output = Command::new(script).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
});

pub(crate) fn python() -> &'static Path {
    &PYTHON
}

/// Output of a program in that Python.
pub(crate) fn python_output(code: &str) -> String {
    let output = Command::new(python()).args(["-c", code]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// `PATH` with that Python first.
pub(crate) fn path() -> String {
    let directory = python().parent().unwrap().display();
    format!("{directory}:{}", std::env::var("PATH").unwrap())
}

pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) const PLUGINS: [&str; 3] = ["--plugins", "agent_skills", "jupyter"];

/// A server with kernel and skills as the current user, and one as the sandbox user.
pub(crate) fn all_users() -> Vec<ServerFixture> {
    let mut fixtures = vec![with_plugins(&[])];
    fixtures.extend(openhands());
    fixtures
}

/// Server with kernel and skills.
pub(crate) fn with_plugins(variables: &[(&str, &str)]) -> ServerFixture {
    let path = path();
    let variables = [&[("PATH", path.as_str())], variables].concat();
    ServerFixture::start("root", &PLUGINS, &variables)
}

/// Mounts the Python at a path that the sandbox user can read.
pub(crate) fn openhands() -> Option<ServerFixture> {
    ServerFixture::openhands(&PLUGINS, |private, command| {
        let (prefix, site) = (private.path("python"), private.path("site"));
        std::fs::create_dir(&prefix).unwrap();
        std::fs::create_dir(&site).unwrap();
        command
            .env("PYTHON_PREFIX", python_output("import sys; print(sys.base_prefix)"))
            .env("PYTHON_SITE", python_output("import ipykernel, os; print(os.path.dirname(os.path.dirname(ipykernel.__file__)))"))
            .env("PYTHONPATH", &site)
            // Its shared library is at the original path, which the user cannot read.
            .env("LD_LIBRARY_PATH", prefix.join("lib"))
            .env("PATH", format!("{}/bin:/usr/bin:/bin", prefix.display()));
    })
}

impl ServerFixture {
    /// Path of the Python in observations of the kernel.
    pub(crate) fn interpreter(&self) -> String {
        let path = match self.username {
            "openhands" => self.root.with_file_name("python/bin/python3"),
            _ => python().with_file_name("python3"),
        };
        path.display().to_string()
    }

    pub(crate) fn cell_within(&self, code: &str, timeout: f64) -> Value {
        let args = json!({"code": code});
        self.process
            .act(&json!({"action": "run_ipython", "args": args, "timeout": timeout}))
    }

    /// Output of a cell, without the two lines at its end.
    pub(crate) fn cell(&self, code: &str) -> String {
        self.text_within(code, 120.0)
    }

    /// As [`Self::cell`], with a time limit.
    pub(crate) fn text_within(&self, code: &str, timeout: f64) -> String {
        self.text(&self.cell_within(code, timeout))
    }

    /// Content without the two lines at its end.
    pub(crate) fn text(&self, answer: &Value) -> String {
        let content = answer["content"].as_str().unwrap();
        let (text, tail) = content
            .rsplit_once("\n[Jupyter current working directory: ")
            .unwrap_or_else(|| panic!("no tail: {content}"));
        let interpreter = format!("]\n[Jupyter Python interpreter: {}]", self.interpreter());
        assert!(tail.ends_with(&interpreter), "{tail}");
        text.to_owned()
    }
}

#[test]
fn session_with_all_plugins() {
    let home = tempfile::tempdir().unwrap();
    let calls = crate::vscode::install_fake_server(home.path());
    let (path, port) = (path(), free_port().to_string());
    let variables = [
        ("PATH", path.as_str()),
        ("OPENVSCODE_SERVER_ROOT", home.path().to_str().unwrap()),
        ("VSCODE_PORT", &port),
    ];
    let flags = [&PLUGINS[..], &["vscode"]].concat();
    let fixture = ServerFixture::start("root", &flags, &variables);
    // As clients do first: variables for the kernel, then for the shell.
    fixture.cell("import os\nos.environ[\"GREETING\"] = \"hello\"\n\n");
    fixture.run("export GREETING=\"hello\"");
    let path = fixture.path("note.txt").display().to_string();
    fixture.cell(&format!(
        "print(file_editor('create', '{path}', file_text=os.environ['GREETING']))"
    ));
    let shown = fixture.output("cat note.txt; [ $GREETING = hello ] && echo same");
    assert_eq!(shown, "hellosame");
    let png = "from IPython.display import Image; Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(32))";
    let plot = fixture.cell_within(png, 60.0)["extras"]["image_urls"][0].clone();
    let start = "data:image/png;base64,iVBOR";
    assert!(plot.as_str().unwrap().starts_with(start), "{plot}");
    let server = json!({"name": "t", "command": python(), "args": [crate::mcp::SERVER]});
    crate::mcp::update(&fixture, &json!([server]));
    let echo = crate::mcp::tool(&fixture, "echo", &json!({"text": "hi"}));
    assert_eq!(echo.0, "E:hi");
    let token = crate::vscode::token(&fixture);
    let started = crate::vscode::wait_for_line(&calls);
    let token = format!("--connection-token {}", token.as_str().unwrap());
    assert!(started.contains(&token), "{started}");
    let health = fixture.get("/server_info").json()["plugins"].clone();
    let ready = json!({"agent_skills": "ready", "jupyter": "ready", "vscode": "ready"});
    assert_eq!(health, ready);
}
