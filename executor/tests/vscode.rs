//! VS Code with a fake openvscode-server (`docs/specs/executor.md`, sections 1.10 and 2.7).

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::client::{TestProcess, mode_and_owner, serve_command, set_mode, wait_until};
use crate::conformance::environment::CaseEnvironment;
use crate::fixture::ServerFixture;
use crate::free_port::free_port;
use crate::plugins::is_alive;

/// Writes its command line and environment to files.
const FAKE_SERVER: &str = r#"#!/bin/sh
cd "$(dirname "$0")/.." && { id; umask; echo "$HOME $USER $LOGNAME $SHELL $PATH"; } > who && cd "$OLDPWD"
echo "$$ $(id -un) $PWD ${SESSION_API_KEY-none} $*" >> "$(dirname "$0")/../calls"
exec sleep 1000
"#;

struct VsCodeFixture {
    directory: tempfile::TempDir,
    port: u16,
}

impl VsCodeFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        install_fake_server(&directory.path().join("vscode"));
        let port = free_port();
        Self { directory, port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, flags: &[&str]) -> Command {
        let root = self.path("work");
        let mut command = serve_command(&root, &[&["--plugins", "vscode"], flags].concat());
        set_directories(&mut command, &self.path("vscode"), &root);
        command
            .env_remove("RUNTIME_ID")
            .env_remove("RUNTIME_URL")
            .env("VSCODE_PORT", self.port.to_string());
        command
    }

    fn serve(&self, variables: &[(&str, &str)]) -> TestProcess {
        TestProcess::start(self.command(&[]).envs(variables.iter().copied()))
    }

    fn call(&self) -> String {
        wait_for_line(&self.path("vscode/calls"))
    }
}

fn set_directories(command: &mut Command, home: &Path, work: &Path) {
    command
        .env("OPENVSCODE_SERVER_ROOT", home)
        .env("WORKSPACE_BASE", work)
        .env("WORKSPACE_MOUNT_PATH_IN_SANDBOX", work);
}

/// Installs the fake server and returns the file that it writes its command lines to.
fn install_fake_server(home: &Path) -> PathBuf {
    let bin = home.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("openvscode-server");
    fs::write(&program, FAKE_SERVER).unwrap();
    set_mode(program, 0o755);
    home.join("calls")
}

/// Waits until the fake server has been started and returns its command line.
fn wait_for_line(calls: &Path) -> String {
    loop {
        let text = fs::read_to_string(calls).unwrap_or_default();
        if let Some((line, "")) = text.rsplit_once('\n') {
            return line.to_owned();
        }
        std::thread::yield_now();
    }
}

/// Waits until the plugin has started or failed and returns the token.
fn token(process: &TestProcess) -> Value {
    wait_until(|| health(process) != "starting");
    let answer = process.keyed("GET /vscode/connection_token", "");
    assert_eq!(answer.status, 200);
    answer.json()["token"].clone()
}

fn health(process: &TestProcess) -> Value {
    process.plugin_state("vscode")
}

#[test]
fn vscode_starts_with_the_token() {
    let fixture = VsCodeFixture::new();
    let process = fixture.serve(&[
        ("RUNTIME_ID", "abc"),
        ("RUNTIME_URL", "http://h/abc/runtime"),
    ]);
    let token = token(&process);
    let call = fixture.call();
    let (pid, rest) = call.split_once(' ').unwrap();
    let expected = format!(
        "{} {} none --host 127.0.0.1 --connection-token {} --port {} --disable-workspace-trust \
         --server-base-path /abc/vscode",
        process.output("id -un"),
        fixture.path("work").display(),
        token.as_str().unwrap(),
        fixture.port,
    );
    assert_eq!(rest, expected, "1.10 how it is started");
    let settings = fixture.path("work/.vscode/settings.json");
    assert_eq!(mode_and_owner(&settings).0, 0o666);
    let settings: Value = serde_json::from_str(&fs::read_to_string(settings).unwrap()).unwrap();
    assert_eq!(settings["workbench.startupEditor"], "none");
    drop(process);
    let is_left = Path::new(&format!("/proc/{pid}/cwd")).exists();
    assert!(!is_left, "it was left behind");
}

#[test]
fn vscode_runs_as_the_sandbox_user() {
    let prepare = |private: &CaseEnvironment, command: &mut Command| {
        install_fake_server(&private.path("vscode"));
        set_directories(command, &private.path("vscode"), &private.path("work"));
        command.env("VSCODE_PORT", free_port().to_string());
    };
    let flags = ["--plugins", "vscode"];
    let Some(fixture) = ServerFixture::openhands(&flags, prepare) else {
        return;
    };
    let home = fixture.root.with_file_name("vscode");
    assert!(token(&fixture).is_string());
    let call = wait_for_line(&home.join("calls"));
    for part in [" openhands ", " none "] {
        assert!(call.contains(part), "{call}");
    }
    assert_eq!(
        fs::read_to_string(home.join("who")).unwrap().trim_end(),
        fixture.output("id; umask; echo \"$HOME $USER $LOGNAME $SHELL $PATH\""),
        "1.10 the editor has user and environment of the shell"
    );
    let settings = fixture.path(".vscode/settings.json");
    for path in [home.join("bin/openvscode-server"), settings] {
        assert_eq!(mode_and_owner(path).1, 1000);
    }
}

#[test]
fn vscode_restarts_when_it_ends() {
    let fixture = VsCodeFixture::new();
    let process = fixture.serve(&[]);
    token(&process);
    let call = fixture.call();
    assert!(call.ends_with("--disable-workspace-trust"), "{call}");
    process.run(&format!("kill -9 {}", call.split(' ').next().unwrap()));
    wait_until(|| fixture.call().lines().count() >= 2);
}

#[test]
fn vscode_of_another_sandbox_has_another_token() {
    let fixture = VsCodeFixture::new();
    let process = fixture.serve(&[]);
    let before = token(&process);
    fixture.call();
    let body = r#"{"session_api_key": "another"}"#;
    assert_eq!(process.keyed("POST /renew", body).status, 204);
    let head = "GET /vscode/connection_token";
    let after = || {
        let answer = process.request(head, &[("X-Session-API-Key", "another")], b"");
        answer.json()["token"].clone()
    };
    wait_until(|| after().is_string() && after() != before);
    let started = format!("--connection-token {}", after().as_str().unwrap());
    wait_until(|| fixture.call().contains(&started));
}

#[test]
fn child_processes_end_with_vscode() {
    let fixture = VsCodeFixture::new();
    let program = fixture.path("vscode/bin/openvscode-server");
    let script = "#!/bin/sh\nsleep 1000 &\necho $! >> \"$(dirname \"$0\")/../calls\"\nexit 3\n";
    fs::write(program, script).unwrap();
    let process = fixture.serve(&[]);
    token(&process);
    let first = fixture.call().lines().next().unwrap().to_owned();
    wait_until(|| !is_alive(&first));
}

#[test]
fn vscode_exit_is_reported_in_health() {
    let fixture = VsCodeFixture::new();
    let program = fixture.path("vscode/bin/openvscode-server");
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    let process = fixture.serve(&[]);
    let told = "failed: openvscode-server has ended (exit status: 3)";
    // Reported between two starts.
    wait_until(|| health(&process) == told);
    assert!(token(&process).is_string());
    fs::write(&program, FAKE_SERVER).unwrap();
    fixture.call();
    wait_until(|| health(&process) == "ready");
}

#[test]
fn vscode_listens_on_the_address_of_the_server() {
    let fixture = VsCodeFixture::new();
    // In a shared network, each server has the same port at its own address.
    let _other = TcpListener::bind(("127.0.0.2", fixture.port)).unwrap();
    let process = fixture.serve(&[]);
    assert!(token(&process).is_string());
    assert!(fixture.call().contains(" --host 127.0.0.1 "));
    drop(process);
    let mut command = fixture.command(&["--viewer-url-file"]);
    command
        .arg(fixture.path("url"))
        .env_remove("SANDBOX_BIND_ADDRESS")
        .env("VSCODE_PORT", free_port().to_string());
    let process = TestProcess::start(&mut command);
    assert!(token(&process).is_string());
    wait_until(|| fixture.call().contains(" --host 0.0.0.0 "));
}

#[test]
fn server_works_without_vscode() {
    let fixture = VsCodeFixture::new();
    let no_port = "VSCODE_PORT is missing or not a port";
    let no_server = "the image has no openvscode-server";
    for (name, value, reason) in [
        ("VSCODE_PORT", "x", no_port),
        ("VSCODE_PORT", "0", no_port),
        ("OPENVSCODE_SERVER_ROOT", "/nowhere", no_server),
    ] {
        let process = fixture.serve(&[(name, value)]);
        assert_eq!(token(&process), Value::Null);
        assert_eq!(health(&process), format!("failed: {reason}"));
        assert_eq!(process.output("echo hi"), "hi");
    }
    let mut command = fixture.command(&["--username", "developer"]);
    let process = TestProcess::start(command.env("USER", "developer"));
    assert_eq!(token(&process), Value::Null);
    assert_eq!(health(&process), "failed: not available to this user");
    let without = ServerFixture::new("root");
    let answer = without.keyed("GET /vscode/connection_token", "");
    assert_eq!(
        answer.parts(),
        (200, "{\"token\":null}"),
        "2.7 without the plugin"
    );
    assert_eq!(without.get("/vscode/connection_token").status, 403);
}

#[test]
fn token_exists_when_the_port_is_in_use() {
    let fixture = VsCodeFixture::new();
    let _taken = TcpListener::bind(("0.0.0.0", fixture.port)).unwrap();
    let process = fixture.serve(&[]);
    assert!(token(&process).is_string());
    let expected = format!("failed: port {} is in use", fixture.port);
    assert_eq!(health(&process), expected);
}
