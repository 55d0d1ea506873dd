//! Fixture of servers with plugins, and the Python of their kernels.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::client::{TestProcess, serve_command};
use crate::conformance::environment::CaseEnvironment as Private;

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

/// `PATH` with that Python first.
pub(crate) fn path() -> String {
    let directory = python().parent().unwrap().display();
    format!("{directory}:{}", std::env::var("PATH").unwrap())
}

pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Server with kernel and skills.
pub(crate) struct PluginFixture {
    pub(crate) process: TestProcess,
    pub(crate) root: PathBuf,
    /// Path of the Python in observations.
    pub(crate) interpreter: String,
    pub(crate) username: &'static str,
    /// Directories that are removed with the fixture.
    _directories: Box<dyn Any + Send + Sync>,
}

pub(crate) const PLUGINS: [&str; 3] = ["--plugins", "agent_skills", "jupyter"];

/// A server as the current user, and one as the sandbox user.
pub(crate) fn all_users() -> Vec<PluginFixture> {
    let mut fixtures = vec![PluginFixture::new()];
    fixtures.extend(PluginFixture::openhands());
    fixtures
}

impl PluginFixture {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("work");
        let mut command = serve_command(&root, &PLUGINS);
        command.env("PATH", path()).envs(variables.iter().copied());
        Self {
            process: TestProcess::start(&mut command),
            interpreter: python().with_file_name("python3").display().to_string(),
            root,
            username: "root",
            _directories: Box::new(directory),
        }
    }

    /// Mounts the Python at a path that the sandbox user can read.
    pub(crate) fn openhands() -> Option<Self> {
        let private = Private::private("openhands")?;
        let ask = |code: &str| {
            let output = Command::new(python()).args(["-c", code]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let (prefix, site) = (private.path("python"), private.path("site"));
        std::fs::create_dir(&prefix).unwrap();
        std::fs::create_dir(&site).unwrap();
        let mut command = private.command("work", &PLUGINS);
        command
            .env("PYTHON_PREFIX", ask("import sys; print(sys.base_prefix)"))
            .env("PYTHON_SITE", ask("import ipykernel, os; print(os.path.dirname(os.path.dirname(ipykernel.__file__)))"))
            .env("PYTHONPATH", &site)
            // Its shared library is at the original path, which the user cannot read.
            .env("LD_LIBRARY_PATH", prefix.join("lib"))
            .env("PATH", format!("{}/bin:/usr/bin:/bin", prefix.display()));
        Some(Self {
            process: TestProcess::start(&mut command),
            root: private.path("work"),
            interpreter: prefix.join("bin/python3").display().to_string(),
            username: "openhands",
            _directories: Box::new(private),
        })
    }

    pub(crate) fn cell_within(&self, code: &str, timeout: f64) -> Value {
        let args = json!({"code": code});
        self.process
            .act(&json!({"action": "run_ipython", "args": args, "timeout": timeout}))
    }

    /// Output of a cell, without the two lines at its end.
    pub(crate) fn cell(&self, code: &str) -> String {
        self.text(&self.cell_within(code, 120.0))
    }

    /// Content without the two lines at its end.
    pub(crate) fn text(&self, answer: &Value) -> String {
        let content = answer["content"].as_str().unwrap();
        let (text, tail) = content
            .rsplit_once("\n[Jupyter current working directory: ")
            .unwrap_or_else(|| panic!("no tail: {content}"));
        let interpreter = format!("]\n[Jupyter Python interpreter: {}]", self.interpreter);
        assert!(tail.ends_with(&interpreter), "{tail}");
        text.to_owned()
    }
}

#[test]
fn session_with_all_plugins() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("work");
    let home = directory.path().join("vscode");
    let calls = crate::vscode::install_fake_server(&home);
    let mut command = serve_command(&root, &["--plugins", "agent_skills", "jupyter", "vscode"]);
    command
        .env("PATH", path())
        .env("OPENVSCODE_SERVER_ROOT", &home);
    let process =
        TestProcess::start(command.env("VSCODE_PORT", crate::client::free_port().to_string()));
    let cell = |code: &str| {
        process.act(&json!({"action": "run_ipython", "args": {"code": code}, "timeout": 60}))
    };
    // As clients do first: variables for the kernel, then for the shell.
    cell("import os\nos.environ[\"GREETING\"] = \"hello\"\n\n");
    process.run("export GREETING=\"hello\"");
    let path = root.join("note.txt").display().to_string();
    cell(&format!(
        "print(file_editor('create', '{path}', file_text=os.environ['GREETING']))"
    ));
    assert_eq!(
        process.run("cat note.txt; [ $GREETING = hello ] && echo same")["content"],
        "hellosame"
    );
    let png = "from IPython.display import Image; Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(32))";
    let plot = cell(png)["extras"]["image_urls"][0].clone();
    assert!(
        plot.as_str()
            .unwrap()
            .starts_with("data:image/png;base64,iVBOR"),
        "{plot}"
    );
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
    crate::mcp::update(
        &process,
        &json!([{"name": "t", "command": python(), "args": [server]}]),
    );
    assert_eq!(
        crate::mcp::tool(&process, "echo", &json!({"text": "hi"})).0,
        "E:hi"
    );
    let token = crate::vscode::token(&process);
    let started = crate::vscode::wait_for_line(&calls);
    assert!(
        started.contains(&format!("--connection-token {}", token.as_str().unwrap())),
        "{started}"
    );
    let health = process.get("/server_info").json()["plugins"].clone();
    assert_eq!(
        health,
        json!({"agent_skills": "ready", "jupyter": "ready", "vscode": "ready"})
    );
}
