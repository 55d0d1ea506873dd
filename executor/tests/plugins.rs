//! Fixture of servers with plugins, and the Python of their kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

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
