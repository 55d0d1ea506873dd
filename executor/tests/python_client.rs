//! A Python client that was written from the specification.

use std::process::Command;

use crate::client::{KEY, serve};

/// Python with `requests`.
fn python() -> &'static str {
    let can = |python: &&str| {
        let import = Command::new(python)
            .args(["-c", "import requests"])
            .output();
        import.is_ok_and(|output| output.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(can);
    found.expect("Python with requests is needed: see hack/install")
}

#[test]
fn python_client_runs_an_agent_session() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/agent_session.py");
    let output = Command::new(python())
        .arg(script)
        .arg(directory.path())
        .env("SERVER_URL", format!("http://{}", process.address))
        .env("SESSION_API_KEY", KEY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        text.lines().filter(|line| line.starts_with("ok ")).count(),
        text.lines().count()
    );
}
