//! VS Code with a fake openvscode-server (`docs/specs/executor.md`, sections 1.10 and 2.7).

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::client::{KEY, TestProcess, free_port, serve_command};
use crate::conformance::environment::CaseEnvironment as Private;
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
        Self {
            directory,
            port: free_port(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn serve(&self, variables: &[(&str, &str)]) -> TestProcess {
        let root = self.path("work");
        let mut command = serve_command(&root, &["--plugins", "vscode"]);
        command
            .env_remove("RUNTIME_ID")
            .env_remove("RUNTIME_URL")
            .env("VSCODE_PORT", self.port.to_string());
        set_directories(&mut command, &self.path("vscode"), &root);
        TestProcess::start(command.envs(variables.iter().copied()))
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
pub(crate) fn install_fake_server(home: &Path) -> PathBuf {
    let bin = home.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("openvscode-server");
    fs::write(&program, FAKE_SERVER).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    home.join("calls")
}

/// Waits until the fake server has been started and returns its command line.
pub(crate) fn wait_for_line(calls: &Path) -> String {
    loop {
        let text = fs::read_to_string(calls).unwrap_or_default();
        if let Some((line, "")) = text.rsplit_once('\n') {
            return line.to_owned();
        }
        std::thread::yield_now();
    }
}

/// Waits until the plugin has started or failed and returns the token.
pub(crate) fn token(process: &TestProcess) -> Value {
    while health(process) == "starting" {
        std::thread::yield_now();
    }
    let key = [("X-Session-API-Key", KEY)];
    let answer = process.request("GET /vscode/connection_token", &key, b"");
    assert_eq!(answer.status, 200);
    answer.json()["token"].clone()
}

fn health(process: &TestProcess) -> Value {
    process.get("/server_info").json()["plugins"]["vscode"].clone()
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
        process.run("id -un")["content"].as_str().unwrap(),
        fixture.path("work").display(),
        token.as_str().unwrap(),
        fixture.port,
    );
    assert_eq!(rest, expected, "1.10 how it is started");
    let settings = fixture.path("work/.vscode/settings.json");
    assert_eq!(
        fs::metadata(&settings).unwrap().permissions().mode() & 0o777,
        0o666
    );
    let settings: Value = serde_json::from_str(&fs::read_to_string(settings).unwrap()).unwrap();
    assert_eq!(settings["workbench.startupEditor"], "none");
    drop(process);
    assert!(
        !Path::new(&format!("/proc/{pid}/cwd")).exists(),
        "it was left behind"
    );
}

#[test]
fn vscode_runs_as_the_sandbox_user() {
    let Some(private) = Private::private("openhands") else {
        return;
    };
    let home = private.path("vscode");
    let calls = install_fake_server(&home);
    let work = private.path("work");
    let mut command = private.command("work", &["--plugins", "vscode"]);
    set_directories(&mut command, &home, &work);
    let process = TestProcess::start(command.env("VSCODE_PORT", free_port().to_string()));
    assert!(token(&process).is_string());
    let call = wait_for_line(&calls);
    assert!(
        call.contains(" openhands ") && call.contains(" none "),
        "{call}"
    );
    let who = process.run("id; umask; echo \"$HOME $USER $LOGNAME $SHELL $PATH\"");
    assert_eq!(
        fs::read_to_string(home.join("who")).unwrap().trim_end(),
        who["content"],
        "1.10 the editor has user and environment of the shell"
    );
    for path in [
        home.join("bin/openvscode-server"),
        work.join(".vscode/settings.json"),
    ] {
        assert_eq!(fs::metadata(path).unwrap().uid(), 1000);
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
    while fixture.call().lines().count() < 2 {
        std::thread::yield_now();
    }
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
    while is_alive(&first) {
        std::thread::yield_now();
    }
}

#[test]
fn vscode_exit_is_reported_in_health() {
    let fixture = VsCodeFixture::new();
    let program = fixture.path("vscode/bin/openvscode-server");
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    let process = fixture.serve(&[]);
    let told = "failed: openvscode-server has ended (exit status: 3)";
    // Reported between two starts.
    while health(&process) != told {
        std::thread::yield_now();
    }
    assert!(token(&process).is_string());
    fs::write(&program, FAKE_SERVER).unwrap();
    fixture.call();
    while health(&process) != "ready" {
        std::thread::yield_now();
    }
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
    let root = fixture.path("work");
    let mut command = serve_command(&root, &["--plugins", "vscode", "--viewer-url-file"]);
    command
        .arg(fixture.path("url"))
        .env_remove("SANDBOX_BIND_ADDRESS");
    set_directories(&mut command, &fixture.path("vscode"), &root);
    let process = TestProcess::start(command.env("VSCODE_PORT", free_port().to_string()));
    assert!(token(&process).is_string());
    while !fixture.call().contains(" --host 0.0.0.0 ") {
        std::thread::yield_now();
    }
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
        assert_eq!(process.run("echo hi")["content"], "hi");
    }
    let root = fixture.path("other");
    let mut command = serve_command(&root, &["--plugins", "vscode", "--username", "developer"]);
    let process = TestProcess::start(command.env("USER", "developer"));
    assert_eq!(token(&process), Value::Null);
    assert_eq!(health(&process), "failed: not available to this user");
    let without = crate::client::serve(&root);
    let key = [("X-Session-API-Key", KEY)];
    assert_eq!(
        without
            .request("GET /vscode/connection_token", &key, b"")
            .parts(),
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
    assert_eq!(
        health(&process),
        format!("failed: port {} is in use", fixture.port)
    );
}
